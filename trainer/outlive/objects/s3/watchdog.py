"""Ends requests that no longer move. A socket's timeout can't: every byte that trickles in restarts it."""

import fcntl
import socket
import struct
import termios
import threading
import time
from dataclasses import dataclass

_FLOOR_BYTES = 16 * 1024
"""Less than this in a whole ``stall_seconds`` is standing still."""

_LINGER_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a server may keep us waiting: to connect, between bytes, and for its answer to a request."""

    connect_seconds: float = 10.0
    stall_seconds: float = 30.0
    answer_seconds: float = 60.0


class Flight:
    """One request on its way: how far it got, and what to cut if it stops."""

    __slots__ = ("_mark", "_since", "moved", "socket", "stalled", "waiting")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.moved = 0
        self.waiting = False
        self.stalled = ""
        self._mark = 0
        self._since = time.monotonic()

    def answering(self) -> None:
        """Everything is handed over: the server thinks now."""
        self._since = time.monotonic()
        self.waiting = True

    def answered(self) -> None:
        self._since = time.monotonic()
        self.waiting = False

    def check(self, now: float, patience: Patience) -> None:
        """Cut the connection if nothing has moved for too long."""
        if self.socket is None:
            return  # still connecting, which has its own timeout
        progress = self.moved - _unsent(self.socket)
        allowed = patience.answer_seconds if self.waiting else patience.stall_seconds
        if progress >= self._mark + _FLOOR_BYTES:
            self._mark, self._since = progress, now
        elif now - self._since > allowed and not self.stalled:
            self.stalled = (
                f"no answer for {allowed:g} s" if self.waiting else f"almost nothing moved for {allowed:g} s"
            )
            _cut(self.socket)

    def cut(self) -> None:
        """End it from outside."""
        if self.socket is not None:
            self.stalled = self.stalled or "given up"
            _cut(self.socket)


class Watchdog:
    """One thread for all requests of a store, and none while there are none."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._flights: set[Flight] = set()
        self._thread: threading.Thread | None = None

    def begin(self) -> Flight:
        flight = Flight()
        with self._changed:
            self._flights.add(flight)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="outlive-s3-watchdog", daemon=True)
                self._thread.start()
            elif len(self._flights) == 1:
                self._changed.notify()
        return flight

    def end(self, flight: Flight) -> None:
        with self._changed:
            self._flights.discard(flight)

    def cut(self) -> None:
        """End them all."""
        with self._changed:
            for flight in self._flights:
                flight.cut()

    def _watch(self) -> None:
        tick = min(1.0, self._patience.stall_seconds / 4, self._patience.answer_seconds / 4)
        with self._changed:
            while True:
                if self._flights:
                    self._changed.wait(tick)
                elif not self._changed.wait(_LINGER_SECONDS) and not self._flights:
                    self._thread = None
                    return
                now = time.monotonic()
                for flight in self._flights:
                    flight.check(now, self._patience)


def _unsent(sock: socket.socket) -> int:
    """Bytes that the kernel took from us but the server hasn't acknowledged: handed over is not yet moved."""
    try:
        answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError):  # closed meanwhile
        return 0
    return int(struct.unpack("i", answer)[0])


def _cut(sock: socket.socket) -> None:
    """Wake whoever waits on it. The TLS layer is passed by: it belongs to the thread that waits."""
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed meanwhile
