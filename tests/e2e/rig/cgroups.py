"""A guest's processes as one thing: count them, kill them, and leave no cgroup on the host."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from e2e.rig.errors import RigError

_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Every hierarchy systemd writes to: one where the host is pure v2, two where it is a hybrid."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [root for root in (_ROOT / "unified", _ROOT / "systemd") if root.is_dir()]


def of_owner(owner: str) -> "list[Cgroup]":
    """The cgroups that carry this owner's name, whoever made them."""
    return [
        Cgroup(name) for name in sorted({path.name for r in hierarchies() for path in r.glob(f"{owner}-*")})
    ]


class Cgroup:
    """One guest's cgroup, in each hierarchy. Without one of its own nspawn litters the host's root cgroup."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folders = [root / name for root in hierarchies()]

    def create(self) -> None:
        """Make it. The process that is to live in it writes 0 to each folder's cgroup.procs."""
        if not self.folders:
            raise RigError("no cgroup hierarchy that systemd can use", hint="mount cgroup2 on /sys/fs/cgroup")
        for folder in self.folders:
            folder.mkdir()

    def processes(self) -> set[int]:
        """The host's process numbers of everything in it, at any depth."""
        found: set[int] = set()
        for folder in self.folders:
            for inner, _, _ in os.walk(folder):  # passes over what the guest's systemd removes as we look
                with suppress(OSError):
                    procs = Path(inner, "cgroup.procs").read_text()
                    found.update(int(line) for line in procs.split())
        return found - {0}

    def wait_empty(self, within: float) -> None:
        """Wait until the last process is gone: only then is the guest's disk still."""
        deadline = time.monotonic() + within
        while left := self.processes():
            if time.monotonic() > deadline:
                raise RigError(f"{self.name}: still running after {within:.0f} s: {sorted(left)}")
            time.sleep(0.01)

    def remove(self) -> None:
        """Kill what is left in it and take it away, deepest first."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait_empty(10)
        for folder in self.folders:
            for inner, _, _ in os.walk(folder, topdown=False):
                with suppress(FileNotFoundError):
                    Path(inner).rmdir()
