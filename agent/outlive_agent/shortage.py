"""What the machine, or a limit on this process, would not give: told on one line, as every other error."""

import errno
from typing import Final

from outlive.errors import OutliveError

_MEMORY: Final = (
    "there is not enough memory",
    "free some, or raise the limit: ulimit -v, or MemoryMax= and LimitAS= of the unit",
)
_THREADS: Final = (
    "no more threads can be started",
    "raise the limit on processes or memory: ulimit -u, ulimit -v, or TasksMax= of the unit",
)
_BY_ERRNO: Final = {
    errno.ENOMEM: _MEMORY,
    errno.EFBIG: (
        "a file, or memory to share, would be larger than this process may make one",
        "raise the limit: ulimit -f unlimited, or LimitFSIZE=infinity of the unit",
    ),
    errno.EMFILE: ("too many files are open", "raise the limit: ulimit -n, or LimitNOFILE= of the unit"),
    errno.ENFILE: ("too many files are open on this machine", "find out which program holds them: lsof"),
    errno.ENOSPC: ("a disk of this machine is full", "free some space below the runtime directory"),
}


class Shortage(OutliveError):
    """The agent can't do this here and now; what it guards is not damaged by that."""


def shortage(error: BaseException) -> Shortage | None:
    """What to tell a person, if that is what lies behind ``error``; None for a fault of our own."""
    cause: BaseException | None = error
    while cause is not None:
        told = _told(cause)
        if told is not None:
            return Shortage(f"{told[0]} ({_words(cause)})" if _words(cause) else told[0], hint=told[1])
        cause = cause.__cause__
    return None


def _told(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return _THREADS
    return _BY_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None


def _words(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return (text or "").lower()
