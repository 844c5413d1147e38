"""What an error of the operating system means for a store in a directory."""

import errno
import os
import stat
from pathlib import Path

from outlive.errors import AlreadyExists, Denied, NoBucket, StoreError, StoreFull, Unavailable

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ENOENT}
_PASSING |= {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EHOSTDOWN, errno.EREMOTEIO, errno.ENOTCONN}
NO_FILE = {errno.ELOOP, errno.ENXIO}
"""What opening a link or a socket says."""


def translated(error: OSError, location: str, key: str) -> StoreError:
    """One of our errors that names the store and the key."""
    what = f"{location}: {key}: {error.strerror or error}"
    if error.errno == errno.EEXIST:
        return AlreadyExists(f"{location}: {key} exists already")
    if error.errno in _FULL:
        return StoreFull(what, hint="free some space there, or choose another store")
    if error.errno == errno.EFBIG:
        return StoreFull(what, hint="raise the limit on a file's size: ulimit -f unlimited")
    if error.errno in _DENIED:
        return Denied(what, hint=f"check the owner and the permissions of {location}")
    if error.errno in _PASSING:
        return Unavailable(what, hint=f"check the disk that holds {location}")
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return StoreError(what, hint="part of that path is a file already; use another prefix or run name")
    if error.errno in (errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
        return StoreError(what, hint="this file system has no hard links; choose another one")
    return StoreError(what)


def no_directory(root: Path) -> NoBucket:
    return NoBucket(
        f"{root}: the directory {root.parent} does not exist",
        hint=f"is a disk not mounted? otherwise: mkdir -p {root.parent}",
    )


def not_a_directory(root: Path) -> NoBucket:
    return NoBucket(f"{root} is no directory", hint="name a directory for the store")


def kind_of(path: Path) -> str:
    """What stands there, in words."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "gone"
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe"}
    return kinds.get(stat.S_IFMT(mode), "a device or a socket")
