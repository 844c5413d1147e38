"""A server of the test's own, seen from inside the cloud: connections made there are carried here."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Forward:
    """Carries each connection to `target`. `cut()` refuses new ones and breaks the open; `mend()` undoes it.

    `inside` runs a function in the cloud's network, which is where the listening socket is made.
    """

    def __init__(self, inside: Callable[[Callable[[], socket.socket]], socket.socket]) -> None:
        self._inside = inside
        self._here: tuple[str, int] = ("", 0)
        self._there: tuple[str, int] = ("", 0)
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()

    def start(self, here: tuple[str, int], *, target: tuple[str, int]) -> None:
        """Listen on `here` in the cloud for what is to reach `target` on this machine."""
        self._here, self._there = here, target
        self.mend()

    @property
    def is_cut(self) -> bool:
        """Whether nobody gets through."""
        return self._listener is None

    def mend(self) -> None:
        """Accept connections (again)."""
        if self._listener is not None:
            return
        listener = self._inside(lambda: socket.create_server(self._here, backlog=128))
        self._here = listener.getsockname()
        self._listener = listener
        self._run(lambda: self._accept(listener))

    def cut(self) -> None:
        """Refuse connections and break the open ones, as a server that went away would."""
        with self._guard:
            listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts; close alone doesn't
            listener.close()
        with self._guard:
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and wait until nothing of it runs any more."""
        self.cut()
        for thread in list(self._threads):
            thread.join(10)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # cut
            try:
                far = socket.create_connection(self._there, timeout=10)
            except OSError:
                near.close()  # the server behind is away: so is this one
                continue
            far.settimeout(None)
            self._join(near, far, listener=listener)

    def _join(self, near: socket.socket, far: socket.socket, *, listener: socket.socket) -> None:
        with self._guard:
            if self._listener is not listener:  # cut meanwhile
                near.close()
                far.close()
                return
            self._open.update((near, far))
        left = [2]

        def carry(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while chunk := source.recv(1 << 18):
                    sink.sendall(chunk)
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            with self._guard:
                left[0] -= 1
                if left[0] == 0:
                    self._open.difference_update((near, far))
                    near.close()
                    far.close()

        self._run(lambda: carry(near, far))
        self._run(lambda: carry(far, near))

    def _run(self, body: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=body, name="rig-forward", daemon=True)
        self._threads.append(thread)
        thread.start()
