"""The end of NOTIFY_SOCKET at which systemd listens, with its file descriptor store."""

import os
import socket
import sys
import threading
from array import array
from collections.abc import Sequence

from fakes.agents import PATIENCE_SECONDS

_HAND_OVER = """
import os, sys
names, fds, command = sys.argv[1], [int(fd) for fd in sys.argv[2].split(",") if fd], sys.argv[3:]
moved = [os.dup(fd) if fd < 3 + len(fds) else fd for fd in fds]
while any(fd < 3 + len(fds) for fd in moved):
    moved = [os.dup(fd) if fd < 3 + len(fds) else fd for fd in moved]
for index, fd in enumerate(moved):
    os.dup2(fd, 3 + index)
os.closerange(3 + len(fds), 4096)
given = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": names}
os.execve(command[0], command, {**os.environ, **given})
"""


class Systemd:
    """Hears what a service tells, and keeps the descriptors that it gives until they are dropped."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[str] = []
        self.stored: dict[str, int] = {}
        self._changed = threading.Condition()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def wait_for(self, text: str, *, count: int = 1) -> None:
        with self._changed:
            came = self._changed.wait_for(lambda: self._count(text) >= count, PATIENCE_SECONDS)
            assert came, f"no {text!r} among {self.heard}"

    def starting(self, command: Sequence[str]) -> tuple[list[str], tuple[int, ...]]:
        """The command that starts this one with all that is stored, and the descriptors it must inherit."""
        with self._changed:
            names, fds = ":".join(self.stored), tuple(self.stored.values())
        listed = ",".join(str(fd) for fd in fds)
        return [sys.executable, "-c", _HAND_OVER, names, listed, *command], fds

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for fd in self.stored.values():
            os.close(fd)

    def _count(self, text: str) -> int:
        return sum(text in line for line in self.heard)

    def _listen(self) -> None:
        room = socket.CMSG_SPACE(4 * array("i").itemsize)
        while True:
            data, ancillary, _, _ = self._socket.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
            if not data:
                return
            fds = array("i")
            for _, _, rights in ancillary:
                fds.frombytes(rights)
            lines = data.decode().splitlines()
            with self._changed:
                self.heard += lines
                self._store(lines, list(fds))
                self._changed.notify_all()

    def _store(self, lines: list[str], fds: list[int]) -> None:
        name = next((line.partition("=")[2] for line in lines if line.startswith("FDNAME=")), "")
        if "FDSTORE=1" in lines:
            (fd,) = fds
            known = [os.fstat(stored).st_ino for stored in self.stored.values()]
            if os.fstat(fd).st_ino in known:  # as systemd does: a file that it has keeps its name
                os.close(fd)
            else:
                self.stored[name] = fd
        elif "FDSTOREREMOVE=1" in lines and name in self.stored:
            os.close(self.stored.pop(name))
