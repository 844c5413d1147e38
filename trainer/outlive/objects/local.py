"""A directory as an object store: an object is whole and on the disk, or not there, whatever dies when."""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from outlive.errors import AlreadyExists, Damaged, NotFound, StoreError
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.keys import check_key, check_prefix
from outlive.objects.local_errors import NO_FILE, kind_of, no_directory, not_a_directory, translated
from outlive.objects.local_walk import is_document, walk

_SCRAPS = ".outlive-tmp"
"""Where files are written before they get their name. On the same file system, and no key reaches into it."""

_SCRAP_AGE = timedelta(hours=1)
"""A scrap this old belongs to a dead writer. Were it only asleep, its put fails and is tried again."""


class LocalStore:
    """Objects are files below ``path``. The directory is made by the first put, if the one above it exists.

    A key and a longer key that begins with it and a ``/`` can't both be objects here: a file is no directory.
    """

    def __init__(self, path: Path) -> None:
        self._root = path.expanduser().absolute()
        self._lock = threading.Lock()
        self._swept = False
        self._made: set[Path] = set()  # directories whose own names are known to be on the disk

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    @property
    def location(self) -> str:
        return str(self._root)

    @property
    def limits(self) -> Limits:
        return Limits(create_only=True, concurrency=4)

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        path = self._path(key)
        with self._naming(key):
            if create_only and path.exists():  # spares the writing; the link below is what decides
                raise AlreadyExists(f"{self.location}: {key} exists already")
            try:
                self._place(path, body, create_only=create_only)
            except FileNotFoundError:
                # Someone removed an empty directory, or our scrap as too old, between two of our steps.
                self._made.clear()
                self._place(path, body, create_only=create_only)

    def get(self, key: str, *, at_most: int) -> bytes:
        with self._opened(key) as (file, size):
            if size > at_most:
                raise Damaged(f"{self.location}: {key} has {size} bytes, more than {at_most}")
            held = bytearray(size)
            self._fill(file, memoryview(held), key)
            return bytes(held)

    def read_into(self, key: str, buffer: memoryview) -> None:
        with self._opened(key) as (file, size):
            if size != buffer.nbytes:
                raise Damaged(f"{self.location}: {key} has {size} bytes instead of {buffer.nbytes}")
            self._fill(file, buffer.cast("B"), key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with self._naming(prefix):
            self._require()
            for info in walk(self._root, prefix, after):
                if not info.key.startswith(_SCRAPS + "/"):
                    yield info

    def delete(self, keys: Sequence[str]) -> None:
        failures: list[OSError] = []
        directories: set[Path] = set()
        for path in [self._path(key) for key in keys]:
            try:
                path.unlink()
                directories.add(path.parent)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                failures.append(error)
        with self._naming(keys[0] if keys else ""):
            for directory in directories:
                _sync_directory(directory)
        if failures:
            first = failures[0]
            key = str(Path(str(first.filename)).relative_to(self._root))
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise translated(first, self.location, key + more) from first

    def now(self) -> datetime:
        """The file system's clock, which on a network file system is not this machine's."""
        try:
            with self._scrap(b"") as scrap:
                return _modified(scrap.stat())
        except OSError:  # read-only, or not there yet
            return datetime.now(timezone.utc)

    def _path(self, key: str) -> Path:
        parts = check_key(key).split("/")
        if parts[0] == _SCRAPS:
            raise StoreError(f"{key!r} is not a key here: {_SCRAPS} is for unfinished files")
        path = self._root.joinpath(*parts)
        if path.parent.resolve() != self._root.resolve().joinpath(*parts[:-1]):
            raise StoreError(
                f"{self.location}: {key} leads through a symbolic link", hint="remove the link from the store"
            )
        return path

    def _place(self, path: Path, body: Body, *, create_only: bool) -> None:
        self._make_root()
        with self._scrap(body) as scrap:
            self._make(path.parent)
            if create_only:
                path.hardlink_to(scrap)  # fails if the name is taken, whoever else tries at the same moment
            else:
                scrap.replace(path)
            _sync_directory(path.parent)

    @contextmanager
    def _scrap(self, body: Body) -> Iterator[Path]:
        """A file with this content, on the disk, that has no key yet; afterwards gone, or renamed."""
        directory = self._root / _SCRAPS
        directory.mkdir(exist_ok=True)
        scrap = directory / secrets.token_hex(16)
        try:
            with scrap.open("xb", buffering=0) as file:
                rest = memoryview(body).cast("B")
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            self._sweep(scrap)
            yield scrap
        finally:
            scrap.unlink(missing_ok=True)

    def _sweep(self, fresh: Path) -> None:
        """Once a process: remove what killed writers have left. Ages are by the file system's clock."""
        with self._lock:
            if self._swept:
                return
            self._swept = True
        oldest = _modified(fresh.stat()) - _SCRAP_AGE
        for scrap in fresh.parent.iterdir():
            try:
                if _modified(scrap.lstat()) < oldest:
                    scrap.unlink()
            except OSError:
                continue  # another process sweeps too

    def _make_root(self) -> None:
        if not self._root.is_dir():
            if not self._root.parent.is_dir():
                raise no_directory(self._root)
            try:
                self._root.mkdir(exist_ok=True)
            except FileExistsError:
                raise not_a_directory(self._root) from None
            _sync_directory(self._root.parent)

    def _make(self, directory: Path) -> None:
        """Make the directories on the way. An entry is durable only once the directory that holds it is."""
        if directory in self._made or directory == self._root:
            return
        self._make(directory.parent)
        try:
            directory.mkdir(exist_ok=True)
        except FileExistsError:  # a file: an object of that name, which "exists already", it is not
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None
        _sync_directory(directory.parent)
        self._made.add(directory)

    def _require(self) -> None:
        """A store that was never written to is empty; one whose disk is not mounted is an error."""
        if self._root.is_dir():
            return
        if os.path.lexists(self._root):
            raise not_a_directory(self._root)
        if not self._root.parent.is_dir():
            raise no_directory(self._root)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        path = self._path(key)
        with self._naming(key):
            try:
                # Never blocks, and follows nothing: somebody may have put a pipe or a link there.
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError) as error:
                self._require()
                raise NotFound(f"{self.location}: {key} does not exist") from error
            except OSError as error:
                if error.errno in NO_FILE:
                    raise Damaged(f"{self.location}: {key} is {kind_of(path)} and no file") from error
                raise
            try:
                status = os.fstat(file)
                if stat.S_ISDIR(status.st_mode) and not is_document(key):
                    raise NotFound(f"{self.location}: {key} is a folder of keys")
                if not stat.S_ISREG(status.st_mode):
                    raise Damaged(f"{self.location}: {key} is {kind_of(path)} and no file")
                yield file, status.st_size
            finally:
                os.close(file)

    def _fill(self, file: int, buffer: memoryview, key: str) -> None:
        done = 0
        while done < len(buffer):
            count = os.preadv(file, [buffer[done:]], done)
            if count == 0:
                raise Damaged(f"{self.location}: {key} ended after {done} of {len(buffer)} bytes")
            done += count

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise translated(error, self.location, key) from error


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that have no such thing say so this way
            raise
    finally:
        os.close(handle)


def _modified(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, timezone.utc)


def _conforms(store: LocalStore) -> ObjectStore:
    return store
