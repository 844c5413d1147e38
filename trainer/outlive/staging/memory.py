"""Memory files that two processes hold, sealed so that neither can make the other fault by shrinking them."""

import ctypes
import fcntl
import mmap
import os

from outlive.errors import ProtocolError

_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE, which Linux has since 5.14, and Python has no name for."""
_TOUCH_BYTES = 8 * 1024 * 1024
"""At a time: a longer call would keep other threads of this process from mapping memory meanwhile."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def create(name: str, size: int) -> int:
    """A sealed memory file of ``size`` bytes; its descriptor is not inherited by programs we start."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def create_final(name: str, *parts: bytes) -> int:
    """A memory file that holds these, one after the other, and can never be changed."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(fd, rest) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_final(fd: int, *, at_most: int) -> bytes:
    """What :func:`create_final` wrote. ``ProtocolError`` for a descriptor of any other kind."""
    check(fd, 0)
    size = os.fstat(fd).st_size
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE or size > at_most:
        raise ProtocolError(f"a memory file of {size} bytes can still be changed, or is too long")
    content = b""
    while len(content) < size and (part := os.pread(fd, size - len(content), len(content))):
        content += part
    return content


def check(fd: int, size: int) -> None:
    """Refuse a descriptor that is not a sealed memory file of at least ``size`` bytes."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ProtocolError("a descriptor that should be a memory file is not one") from error
    if seals & _SEALS != _SEALS:
        # An unsealed file could be cut short by its maker, and reading past its end is SIGBUS for the reader.
        raise ProtocolError("a memory file is not sealed against shrinking and growing")
    actual = os.fstat(fd).st_size
    if actual < size:
        raise ProtocolError(f"a memory file holds {actual} bytes where {size} were announced")


def map_file(fd: int, size: int, *, writable: bool, populate: bool = False) -> mmap.mmap:
    """Map the first ``size`` bytes, shared. ``populate`` touches every page now, not at the first copy."""
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populate else 0)
    return mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))


def touch(area: mmap.mmap, size: int, *, begin: int = 0) -> None:
    """Give every page of a writable mapping's stretch its memory now, with its content as it is.

    ``begin`` is where the stretch begins, at a page.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    for start in range(0, size, _TOUCH_BYTES):
        length = min(_TOUCH_BYTES, size - start)
        if madvise(ctypes.c_void_p(address + begin + start), ctypes.c_size_t(length), _POPULATE_WRITE) != 0:
            return  # an older kernel, or no memory: then the first copy touches the rest, or fails
