"""This agent's own directory for its socket and status, and the lock by which a drain is waited for."""

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlive.errors import ConfigError
from outlive.staging.channel import MAX_PATH_BYTES
from outlive_agent import status

SOCKET_NAME = "agent.sock"
DRAIN_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05
_ELSEWHERE = "set XDG_RUNTIME_DIR to a private directory with a short path, or unset it"


def prepare(root: Path, *, name: str) -> Path:
    """A private directory ``root/name``, and none that anyone else could have laid out for us."""
    own = root / name
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError as error:
        raise _unusable(root, error) from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise ConfigError(
            f"{root} is not a directory that only this user can write to",
            hint="remove it, or set XDG_RUNTIME_DIR to a private directory",
        )
    try:
        _remove_stale(root)
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(root, error) from None
    return own


def socket_in(directory: Path) -> Path:
    """The socket of an agent whose directory this is, or will be: the kernel takes no longer name."""
    path = directory / SOCKET_NAME
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(
            f"the socket's path would be longer than {MAX_PATH_BYTES} bytes: {path}", hint=_ELSEWHERE
        )
    return path


def _unusable(root: Path, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    return ConfigError(f"{root} can't be the directory of agents: {reason}", hint=_ELSEWHERE)


class DrainLock:
    """Held by an agent while it finishes saves of a trainer that is gone; the next agent waits for it.

    Else the next life would claim the run, and the one that drains would find its save superseded.
    """

    def __init__(self, root: Path, store: str, *, run: str) -> None:
        self._root = root
        self._store = store
        self._run = run
        digest = hashlib.sha256(f"{store}\0{run}".encode()).hexdigest()[:16]
        self._path = root / f"drain-{digest}.lock"
        self._fd = -1

    @property
    def path(self) -> Path:
        """The lock's file, whose name is that of the run in its store."""
        return self._path

    def hold(self) -> None:
        """Take it, if nobody else drains; harmless twice."""
        if self._fd >= 0:
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # the directory went with its user's last login: the last save matters more than the lock
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return
        self._fd = fd

    def release(self) -> None:
        """Let the next agent go on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def wait(
        self, *, say: Callable[[], None], stopped: Callable[[], bool], seconds: float = DRAIN_WAIT_SECONDS
    ) -> bool:
        """Wait until nobody drains; calls ``say`` once if somebody does. False if the wait was cut short."""
        deadline = time.monotonic() + seconds
        said = False
        # In this order: a sidecar takes the lock before its training ends, so one of the two is always seen.
        while self._orphaned() or not self._free():
            if not said:
                say()
                said = True
            if stopped() or time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)  # flock has no timeout, and this lock is nearly always free
        return True

    def _orphaned(self) -> bool:
        """Whether a training of this run has lost its agent: it is about to save through a sidecar."""
        for path in self._root.glob(f"*-*/{status.FILE_NAME}"):
            left = status.read(path)
            if left is None or left.trainer_pid is None or (left.run, left.store) != (self._run, self._store):
                continue
            with suppress(OSError):  # its agent has ended meanwhile, and removed it
                told_at = path.stat().st_mtime
                if not status.lived_at(left.pid, told_at) and status.lived_at(left.trainer_pid, told_at):
                    return True
        return False

    def _free(self) -> bool:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # none was taken, or nobody can know: the run must begin all the same
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True


def _remove_stale(root: Path) -> None:
    """Directories of agents that were killed, once their last words are a day old."""
    for path in root.iterdir():
        pid = path.name.rpartition("-")[2]
        if not pid.isdecimal() or Path(f"/proc/{pid}").exists():
            continue
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > status.STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
