"""A guest's files, read and written from the host without ever following the guest's links out of it."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_IN_ROOT = 0x10
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_in_root(root: int, path: str, flags: int, *, mode: int = 0) -> int:
    """Open `path` as a process chrooted to `root` would: `/etc/x -> /etc/passwd` is the guest's passwd."""
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=mode, resolve=_RESOLVE_IN_ROOT)
    arguments = (root, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    descriptor = int(_libc.syscall(_OPENAT2, *arguments))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return descriptor


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(root: Path, path: str) -> bytes:
    """The file's bytes. FileNotFoundError also where the guest has deleted what a lower layer holds."""
    with _folder(root) as folder:
        try:
            # Not blocking: a pipe must not hang the test.
            descriptor = open_in_root(folder, path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:  # an overlay's mark for "deleted" is a device that opens nowhere
                raise FileNotFoundError(errno.ENOENT, "deleted", path) from None
            raise
        with os.fdopen(descriptor, "rb") as file:
            return file.read()


def exists(root: Path, path: str) -> bool:
    """Whether there is anything of that name."""
    with _folder(root) as folder:
        try:
            os.close(open_in_root(folder, path, os.O_PATH))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


class Layers:
    """The disk of a guest that is off: what the guest wrote (`upper`) over the image (`lower`)."""

    def __init__(self, upper: Path, lower: Path) -> None:
        self.upper = upper
        self.lower = lower

    def read(self, path: str) -> bytes:
        """The file as the guest would see it after its next boot."""
        if self._deleted(path) or exists(self.upper, path):
            return read(self.upper, path)
        return read(self.lower, path)

    def exists(self, path: str) -> bool:
        """Whether the guest would find it after its next boot."""
        return not self._deleted(path) and (exists(self.upper, path) or exists(self.lower, path))

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Put a file on the disk. Only while the guest is off: a mounted overlay doesn't like surprises."""
        target = self._place(path)
        target.unlink(missing_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)

    def link(self, path: str, target: str) -> None:
        """Put a symbolic link on the disk."""
        place = self._place(path)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def _deleted(self, path: str) -> bool:
        # Any of the folders above it may be what the guest deleted.
        for above in (PurePosixPath(path), *PurePosixPath(path).parents):
            try:
                with _folder(self.upper) as folder:
                    descriptor = open_in_root(folder, str(above), os.O_PATH | os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError):
                continue
            found = os.fstat(descriptor)
            os.close(descriptor)
            if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
                return True
        return False

    def _place(self, path: str) -> Path:
        """Where in `upper` the file goes. A folder made there hides the image's, so it must look the same."""
        where = PurePosixPath("/")
        for part in PurePosixPath(path).parent.parts[1:]:
            where = self._resolved(where / part)
            mine, theirs = self.upper / where.relative_to("/"), self.lower / where.relative_to("/")
            if mine.is_symlink():
                raise OSError(errno.ELOOP, "a link of the guest's is in the way", str(where))
            if not mine.exists():
                mine.mkdir()
                if theirs.is_dir():
                    look = theirs.stat()
                    os.chown(mine, look.st_uid, look.st_gid)
                    mine.chmod(stat.S_IMODE(look.st_mode))
        return self.upper / where.relative_to("/") / PurePosixPath(path).name

    def _resolved(self, path: PurePosixPath) -> PurePosixPath:
        with _folder(self.lower) as folder:
            try:
                descriptor = open_in_root(folder, str(path), os.O_PATH)
            except (FileNotFoundError, NotADirectoryError):
                return path  # not in the image: taken as it is
            found = Path(f"/proc/self/fd/{descriptor}").readlink()
            os.close(descriptor)
        return PurePosixPath("/") / PurePosixPath(found).relative_to(self.lower)
