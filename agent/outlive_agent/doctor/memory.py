"""Whether there is room for one more copy of the state, in the kind of memory that snapshots lie in."""

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outlive.staging import memory as memory_file
from outlive_agent.doctor.checkpoint import State
from outlive_agent.doctor.finding import Finding, ok, problem, warning
from outlive_agent.units import bytes_text

MEMINFO: Final = Path("/proc/meminfo")
OWN_GROUP: Final = Path("/proc/self/cgroup")
GROUPS: Final = Path("/sys/fs/cgroup")
SHARED: Final = Path("/dev/shm")  # noqa: S108 - looked at, not written to
_COPIES: Final = 4
_TRIED_BYTES: Final = 64 * 1024 * 1024
_WORKERS_BYTES: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """``free_bytes``: what may still be taken. ``limit``: what the group of processes may have, or empty.

    ``copy_rate``: bytes a second into a fresh memory file; None where there can be none.
    """

    free_bytes: int
    limit: str
    copy_rate: float | None
    refusal: str = ""


def look_at_memory(*, meminfo: Path = MEMINFO, own_group: Path = OWN_GROUP, groups: Path = GROUPS) -> Memory:
    """Free memory of the machine or of the container, and one small snapshot tried."""
    free, limit = _available(meminfo), ""
    for group in _own_groups(own_group, groups):
        most, used = _number(group / "memory.max"), _number(group / "memory.current")
        if most is not None and used is not None and most - used + _cache(group) < free:
            free, limit = most - used + _cache(group), bytes_text(most)
    try:
        rate = _try_copy(min(_TRIED_BYTES, max(free // 4, mmap.PAGESIZE)))
    except OSError as error:
        return Memory(free_bytes=free, limit=limit, copy_rate=None, refusal=(error.strerror or "").lower())
    return Memory(free_bytes=free, limit=limit, copy_rate=rate)


def memory(found: Memory, state: State | None) -> Finding:
    """One extra copy of the state is what a snapshot is, and a last one may come while one is on its way."""
    figures = {"free_bytes": found.free_bytes, "copy_bytes_per_second": int(found.copy_rate or 0)}
    if found.copy_rate is None:
        change = "allow memfd_create, and no small limit on the size of files (ulimit -f unlimited)"
        return problem("memory", f"no memory file can be made: {found.refusal}", change=change, **figures)
    of = f" of a limit of {found.limit}" if found.limit else ""
    seen = f"{bytes_text(found.free_bytes)} free{of}"
    if state is None:
        return ok("memory", f"{seen}, for one extra copy of the state", **figures)
    size = bytes_text(state.whole_bytes)
    if state.whole_bytes > found.free_bytes:
        change = "a machine (or a container's limit) with more memory, or a smaller state"
        return problem("memory", f"{seen}; a snapshot needs {size} more", change=change, **figures)
    if 2 * state.whole_bytes > found.free_bytes:
        change = "more memory; else a stop that meets an upload under way waits for its end"
        return warning("memory", f"{seen}; a snapshot takes {size}, two don't fit", change=change, **figures)
    return ok("memory", f"{seen}; a snapshot takes {size}, at the end perhaps two", **figures)


def shared_memory(*, path: Path = SHARED) -> Finding:
    """Snapshots don't lie there, but what data workers hand over does: a container has 64 MB by default."""
    try:
        room = os.statvfs(path)
    except OSError:
        change = "mount a tmpfs there if the training has data workers"
        return warning("shared-memory", f"there is no {path}", change=change)
    total = room.f_blocks * room.f_frsize
    seen = f"{path} has {bytes_text(total)}"
    if total < _WORKERS_BYTES:
        change = "docker run --shm-size=8g, or a memory volume in the pod, if the training has data workers"
        return warning("shared-memory", f"{seen}: data workers die of that", change=change, bytes=total)
    return ok("shared-memory", seen, bytes=total)


def _try_copy(size: int) -> float:
    """The best of a few: after the first snapshot an arena has its pages, and others use the machine now."""
    source = bytes(size)
    descriptor = memory_file.create("outlive-doctor", size)
    try:
        with memory_file.map_file(descriptor, size, writable=True) as target:
            seconds = []
            for _ in range(_COPIES):
                began = time.monotonic()
                target[:size] = source
                seconds.append(time.monotonic() - began)
            return size / max(min(seconds), 1e-6)
    finally:
        os.close(descriptor)


def _available(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _own_groups(own_group: Path, groups: Path) -> list[Path]:
    """This process's group and all above it: each may set the limit."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    own = groups / path.strip("/")
    return [group for group in (own, *own.parents) if group == groups or groups in group.parents]


def _cache(group: Path) -> int:
    """Pages of files, which the kernel gives up at once."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    words = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return int(words.get("inactive_file", 0))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max" is no limit
        return None
