"""The socket between trainer and agent: whole packets, descriptors beside them, a peer we know."""

import contextlib
import os
import select
import socket
import struct
import time
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from outlive.errors import ProtocolError
from outlive.staging.messages import MAX_PACKET_BYTES, Message, decode, encode

MAX_FDS = 4
MAX_PATH_BYTES = 107
"""The kernel takes no longer name for a socket."""
_UCRED = struct.Struct("3i")
_ROOM_FOR_FDS = socket.CMSG_SPACE(MAX_FDS * array("i").itemsize)
_GONE = "the other side has gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


class Received(NamedTuple):
    """One packet. The descriptors are the caller's to close."""

    message: Message
    fds: tuple[int, ...]


class Channel:
    """One end of the conversation. One thread may send while another receives."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes a connected SEQPACKET socket over."""
        sock.setblocking(True)
        self._socket = sock

    @classmethod
    def from_fd(cls, fd: int) -> "Channel":
        """One end of a socketpair that was inherited. Takes ``fd`` over."""
        return cls(socket.socket(fileno=fd))

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Two ends in one process: one to keep, one for a child."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """For ``select``; -1 once closed."""
        return self._socket.fileno()

    @property
    def peer(self) -> Peer:
        """The process that connected (or made the pair)."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, gid = _UCRED.unpack(raw)
        return Peer(pid=pid, uid=uid, gid=gid)

    def send(self, message: Message, fds: Sequence[int] = (), *, timeout: float | None = None) -> None:
        """Send one packet; the descriptors stay open here.

        ``EOFError`` if the other side has gone, ``TimeoutError`` if it does not read.
        """
        raw = encode(message)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._wait(select.POLLOUT, deadline)
            try:
                # Never blocks: a stopped peer with a full buffer would hold up our deadlines.
                # Not socket.send_fds, which ignores its flags.
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
                self._socket.sendmsg([raw], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                continue
            except OSError as error:
                raise EOFError(_GONE) from error
            return

    def receive(self, timeout: float | None = None) -> Received:
        """The next packet. ``EOFError`` if the other side has gone; ``TimeoutError``; ``ProtocolError``."""
        self._wait(select.POLLIN, None if timeout is None else time.monotonic() + timeout)
        try:
            # Not socket.recv_fds, which ignores its flags: a program started meanwhile would get the arena.
            raw, ancillary, flags, _ = self._read()
        except OSError as error:
            raise EOFError(_GONE) from error
        fds = _descriptors(ancillary)
        try:
            return Received(_checked_packet(raw, flags), fds)
        except (EOFError, ProtocolError):
            for fd in fds:
                os.close(fd)
            raise

    def close(self) -> None:
        """The other side sees an end of file, also where a thread here still waits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        try:
            return self._socket.recvmsg(MAX_PACKET_BYTES + 1, _ROOM_FOR_FDS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            # The other side closed and left unread what we sent. It is told once; then come its last words.
            return self._socket.recvmsg(MAX_PACKET_BYTES + 1, _ROOM_FOR_FDS, socket.MSG_CMSG_CLOEXEC)

    def _wait(self, event: int, deadline: float | None) -> None:
        fd = self._socket.fileno()
        if fd < 0:
            raise EOFError("this side has hung up")
        poll = select.poll()
        poll.register(fd, event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError("the other side did not answer in time")


def connect(path: str | Path, *, timeout: float = 10.0) -> Channel:
    """Connect to an agent. ``FileNotFoundError``, ``ConnectionRefusedError`` if there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(timeout)
        sock.connect(_checked(path))
    except OSError:
        sock.close()
        raise
    return Channel(sock)


class Listener:
    """A bound socket that only lets in the user ids it was told."""

    def __init__(self, path: str | Path, *, uids: Collection[int], mode: int = 0o600) -> None:
        """Binds ``path``, also over a dead agent's socket. ``ProtocolError`` if one listens there."""
        self.path = Path(path)
        self._uids = frozenset(uids)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            _clear_stale(self.path)
            self._socket.bind(_checked(path))
            self.path.chmod(mode)
            self._socket.listen(8)
        except (OSError, ProtocolError):
            self._socket.close()
            raise

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def accept(self) -> Channel:
        """The next peer. ``ProtocolError`` if its user id is not one of ours; it has been shut out then."""
        sock, _ = self._socket.accept()
        channel = Channel(sock)
        peer = channel.peer
        if peer.uid not in self._uids:
            channel.close()
            raise ProtocolError(f"process {peer.pid} of user id {peer.uid} may not connect to {self.path}")
        return channel

    def close(self) -> None:
        """Stop listening and remove the socket's name."""
        if self._socket.fileno() < 0:
            return
        self._socket.close()
        self.path.unlink(missing_ok=True)


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, ...]:
    fds = array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return tuple(fds)


def _checked_packet(raw: bytes, flags: int) -> Message:
    if not raw:
        raise EOFError(_GONE)
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise ProtocolError("a packet is too long, or carries too many descriptors")
    return decode(raw)


def _clear_stale(path: Path) -> None:
    if not path.is_socket():
        return
    try:
        connect(path, timeout=1.0).close()
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
    else:
        raise ProtocolError(
            f"another agent listens on {path}", hint="stop it first, or give this one another socket path"
        )


def _checked(path: str | Path) -> str:
    text = os.fspath(path)
    if len(os.fsencode(text)) > MAX_PATH_BYTES:
        raise ProtocolError(
            f"the socket's path is longer than {MAX_PATH_BYTES} bytes: {text}",
            hint="set XDG_RUNTIME_DIR to a shorter directory",
        )
    return text
