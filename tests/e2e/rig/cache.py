"""What is slow to make is made once, and is there either whole or not at all."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Where images, wheels and the guests' disks lie: $OUTLIVE_RIG_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("OUTLIVE_RIG_CACHE"):
        folder = Path(chosen).absolute()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlive-rig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def disks_folder() -> Path:
    """Where guests' disks lie: $OUTLIVE_RIG_DISKS, else memory where there is plenty, else the cache folder.

    In memory pip is twice as fast, and a test doesn't wait for what others write to the same disk.
    """
    if chosen := os.environ.get("OUTLIVE_RIG_DISKS"):
        return Path(chosen).absolute()
    memory = Path("/dev/shm")  # noqa: S108  # nothing in it has a name that can be guessed
    if os.path.ismount(memory) and shutil.disk_usage(memory).free > 4 << 30:
        return memory
    return cache_folder() / "live"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock against other processes and threads. The kernel lets go of it when the holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Give the folder `target`, made by `build` if it isn't there yet.

    `build` fills a folder beside it that gets its name only when whole: a builder that was killed half way
    leaves nothing that looks finished, and of two builders at once the second waits for the first.
    """
    if target.exists():
        os.utime(target)  # in use: forget_unused leaves it
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{target.name}.lock")):
        if not target.exists():
            half = target.with_name(f"{target.name}.half")
            if half.exists():
                shutil.rmtree(half)
            half.mkdir()
            build(half)
            half.rename(target)
    return target


def forget_unused(folder: Path, pattern: str = "*") -> None:
    """Delete what nobody asked for during a day: there is one of these for every state of the source."""
    for old in folder.glob(pattern):
        if old.suffix not in (".lock", ".half") and old.stat().st_mtime < time.time() - 86400:
            shutil.rmtree(old)
