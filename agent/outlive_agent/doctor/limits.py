"""What this process may use. Units have limits of their own, so this speaks of ``outlive exec`` from here."""

import os
import resource
from pathlib import Path
from typing import Final

from outlive_agent.doctor.checkpoint import State
from outlive_agent.doctor.finding import Finding, ok, problem, warning
from outlive_agent.units import bytes_text

_LEAST_FILES: Final = 256
_MEMORY: Final = {"RLIMIT_AS": "-v", "RLIMIT_DATA": "-d", "RLIMIT_FSIZE": "-f"}
"""What bounds the size of a snapshot, and how the shell calls it."""


def limits(state: State | None) -> Finding:
    """Limits that a snapshot, pinned memory or many connections would run into."""
    found, changes = [], []
    for name, flag in _MEMORY.items():
        soft = resource.getrlimit(getattr(resource, name))[0]
        if soft != resource.RLIM_INFINITY:
            found.append(f"{name} {bytes_text(soft)}")
            if state is None or soft < 2 * state.whole_bytes:
                changes.append(f"ulimit {flag} unlimited")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files < _LEAST_FILES:
        found.append(f"RLIMIT_NOFILE {files}")
        changes.append(f"ulimit -n {max(_LEAST_FILES, 4096)}")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    pinned = "unlimited" if locked == resource.RLIM_INFINITY else bytes_text(locked)
    figures = {"files": files, "memlock_bytes": None if locked == resource.RLIM_INFINITY else locked}
    if changes:
        return warning("limits", ", ".join(found), change=", ".join(changes), **figures)
    sizes = ", ".join(found) or "sizes unlimited"
    return ok("limits", f"{files:,} open files, locked memory {pinned}, {sizes}", **figures)


def disk(location: str, state: State | None, *, keep: int) -> Finding | None:
    """Room for the checkpoints that are kept and the next one. None where the store is a bucket."""
    if "://" in location:
        return None
    place = next(path for path in (Path(location), *Path(location).parents) if path.exists())
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    seen = f"{bytes_text(free)} free at {place}"
    if state is None:
        return ok("disk", seen, free_bytes=free)
    need = state.whole_bytes + state.sent_bytes * keep
    seen += f"; {keep + 1} checkpoints take up to {bytes_text(need)}"
    if need > free:
        change = "free some space, keep fewer (save: {keep: {last: 1}}), or use a bucket"
        return problem("disk", seen, change=change, free_bytes=free, needed_bytes=need)
    return ok("disk", seen, free_bytes=free, needed_bytes=need)
