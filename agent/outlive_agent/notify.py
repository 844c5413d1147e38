"""What systemd hears from the agent: ready, still alive, what it does, and that a stop needs more time."""

import os
import socket
import time
from array import array
from collections.abc import Mapping

import sdnotify

EXTEND_SECONDS = 10.0


class Notify:
    """Silent where nobody listens. Called from the deciding thread only, so that a hang is found out."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._notifier = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None
        self._watchdog = _watchdog_seconds(environ) if self._notifier else None
        self._next = 0.0
        self._status = ""

    @property
    def period(self) -> float | None:
        """How often :meth:`alive` must be called, in seconds; None = never."""
        return self._watchdog

    def ready(self) -> None:
        """Units that come after this one may start."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """The line that ``systemctl status`` shows."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feed the watchdog, where there is one."""
        if self._watchdog is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._watchdog
            self._send("WATCHDOG=1")

    def extend(self) -> None:
        """The stop makes progress and needs some more seconds."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(EXTEND_SECONDS * 1e6)}")

    def store(self, name: str, fd: int) -> bool:
        """systemd holds this descriptor too, and gives it to the agent that replaces us. ``OSError``.

        False where there is no systemd.
        """
        if self._notifier is None or self._notifier.socket is None:
            return False
        # Not polled: a memory file has no other end that could hang up.
        state = f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0".encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))]
        self._notifier.socket.sendmsg([state], rights)
        return True

    def discard(self, name: str) -> None:
        """systemd needs to hold this one no longer."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def close(self) -> None:
        """Nothing more will be said."""
        if self._notifier is not None:
            self._notifier.socket.close()
            self._notifier = None

    def _send(self, state: str) -> None:
        if self._notifier is not None:
            self._notifier.notify(state)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 / 3 if text.isdecimal() and int(text) > 0 else None
