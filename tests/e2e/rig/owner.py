"""All that the rig makes carries its process's name; what a dead process left is removed by the next."""

import atexit
import fcntl
import os
import secrets
import shutil
from pathlib import Path

from e2e.rig import cgroups
from e2e.rig.cache import disks_folder, locked

_REGISTRY = Path("/run/outlive-rig")


class Owner:
    """This process's claim on a name, a folder for its guests' disks, and every cgroup with that prefix.

    The claim is a file lock: the kernel drops it when the process dies, so a process number that is used
    again can't make a dead owner look alive.
    """

    def __init__(self) -> None:
        self.name = f"outlive-rig-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = disks_folder() / self.name
        self._pid = os.getpid()
        self._counter = 0
        self._claim = _REGISTRY / self.name
        self._lock = os.open(self._claim, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, str(self.folder).encode())
        self.folder.mkdir(parents=True, mode=0o700)

    def next_name(self) -> str:
        """A name that no other guest on this machine has. Short enough to be a host name."""
        self._counter += 1
        return f"{self.name}-{self._counter}"

    def release(self) -> None:
        """Give the name back, at the end of the process; a guest that was not closed goes too."""
        if os.getpid() != self._pid:
            return  # a fork of the owner, ending
        _remove(self.name, self.folder)
        self._claim.unlink(missing_ok=True)
        os.close(self._lock)


_owners: dict[int, Owner] = {}  # by process: a fork must not use its parent's names


def owner() -> Owner:
    """This process's owner; the first call sweeps what dead ones left."""
    found = _owners.get(os.getpid())
    if found is None:
        _REGISTRY.mkdir(exist_ok=True)
        with locked(_REGISTRY / ".lock"):  # a sweep must not meet a claim between its file and its lock
            _sweep()
            found = _owners[os.getpid()] = Owner()
            atexit.register(found.release)
    return found


def sweep() -> list[str]:
    """Remove processes, cgroups and disks of owners that are dead, and tell whose they were."""
    _REGISTRY.mkdir(exist_ok=True)
    with locked(_REGISTRY / ".lock"):
        return _sweep()


def _sweep() -> list[str]:
    swept = []
    for claim in sorted(_REGISTRY.glob("outlive-rig-*")):
        descriptor = os.open(claim, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = os.read(descriptor, 4096).decode()
            _remove(claim.name, Path(folder) if folder else None)
            claim.unlink()
            swept.append(claim.name)
        except BlockingIOError:
            continue  # its owner lives
        finally:
            os.close(descriptor)
    return swept


def _remove(name: str, folder: Path | None) -> None:
    for cgroup in cgroups.of_owner(name):
        cgroup.remove()
    if folder is not None and folder.exists():
        shutil.rmtree(folder)
