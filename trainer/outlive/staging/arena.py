"""An arena: memory for one snapshot's image, held by trainer and agent alike, so that it outlives either."""

import contextlib
import mmap
import os
from types import TracebackType
from typing import NamedTuple

from outlive.errors import ProtocolError
from outlive.staging import memory

MAX_NOTES_BYTES = 128 * 1024 * 1024
"""Tensor table and values together: two documents below 64 MiB each."""


class Arena:
    """A mapped memory file; ``view`` is its bytes. Closing leaves the other side's mapping alone."""

    def __init__(self, fd: int, size: int, *, writable: bool = True, populate: bool = False) -> None:
        """Takes ``fd`` over. Use :meth:`create` or :meth:`attach`."""
        self.fd = fd
        self.bytes = size
        # mmap refuses a length of zero, and a state without tensors has one; such a file is one byte long.
        self._map: mmap.mmap = memory.map_file(fd, max(size, 1), writable=writable, populate=populate)
        self._whole = memoryview(self._map)
        self.view: memoryview = self._whole[:size]

    @classmethod
    def create(cls, size: int, *, populate: bool = False) -> "Arena":
        """New memory, sealed, zero everywhere."""
        fd = memory.create("outlive-arena", max(size, 1))
        try:
            return cls(fd, size, populate=populate)
        except (OSError, ValueError):
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, size: int, *, writable: bool = True) -> "Arena":
        """Map memory that the other side made. Takes ``fd`` over, also where ``ProtocolError`` refuses it."""
        try:
            memory.check(fd, max(size, 1))
            return cls(fd, size, writable=writable)
        except (ProtocolError, OSError, ValueError) as error:
            os.close(fd)
            if isinstance(error, ProtocolError):
                raise
            raise ProtocolError(f"an arena of {size} bytes can't be mapped: {error}") from error

    def prefault(self, begin: int = 0, size: int | None = None) -> None:
        """Touch every page without changing it: the first touch of a page costs ten times its copying.

        For a thread of its own; the interpreter is not held up. What fails here fails at the first copy too.
        """
        with contextlib.suppress(ValueError):  # closed meanwhile
            memory.touch(self._map, max(self.bytes, 1) if size is None else size, begin=begin)

    def close(self) -> None:
        """Unmap and close. Slices of ``view`` that are still held keep the mapping until they are gone."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        with contextlib.suppress(BufferError):
            self.view.release()
            self._whole.release()
            self._map.close()

    def __del__(self) -> None:
        # An arena that nobody holds any more must not keep its memory, which may be most of the machine's.
        if hasattr(self, "view"):
            self.close()

    def __enter__(self) -> "Arena":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Notes(NamedTuple):
    """What a snapshot holds besides its image: the encoded tensor table and the encoded values."""

    table: bytes
    values: bytes


def notes_to_fd(table: bytes, values: bytes) -> int:
    """A sealed memory file that holds both, one after the other. The caller closes it once it is sent."""
    fd = memory.create("outlive-notes", len(table) + len(values))
    try:
        _write(fd, table, 0)
        _write(fd, values, len(table))
    except OSError:
        os.close(fd)
        raise
    return fd


def read_notes(fd: int, table: int, values: int) -> Notes:
    """Read both back, given their lengths, leaving ``fd`` open. ``ProtocolError`` if they don't fit it."""
    if table < 0 or values < 0 or table + values > MAX_NOTES_BYTES:
        raise ProtocolError(f"notes of {table} + {values} bytes are longer than {MAX_NOTES_BYTES} bytes")
    try:
        actual = os.fstat(fd).st_size
        if actual != table + values:
            raise ProtocolError(f"notes hold {actual} bytes where {table} + {values} were announced")
        return Notes(_read(fd, table, 0), _read(fd, values, table))
    except OSError as error:
        raise ProtocolError(f"notes can't be read: {error}") from error


def _write(fd: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest, offset = rest[written:], offset + written


def _read(fd: int, length: int, offset: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = os.pread(fd, length, offset)
        if not part:
            raise ProtocolError("notes ended before their announced length")
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)
