"""Other agents on this machine: a run that trains here already is not taken over by a slip of the hand."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlive.errors import ConfigError
from outlive_agent import status

PATIENCE_SECONDS = 3.0
"""How long one that may be about to end is waited for."""
_POLL_SECONDS = 0.05


def refuse_second(root: Path, store: str, *, run: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """``ConfigError`` if an ``outlive exec`` of this user trains the run. One that drains is no obstacle.

    A new life would end that one, and what it has not saved would be trained again. From another machine
    that is what is wanted; here whoever wants it can stop the other first.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (pid := _training(root, store, run)) is not None:
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"run {run} is being trained on this machine already, by process {pid}",
                hint=f"stop it first, which saves it: kill -INT {pid}; or take another --run",
            )
        sleep(_POLL_SECONDS)


def _training(root: Path, store: str, run: str) -> int | None:
    for path in root.glob(f"exec-*/{status.FILE_NAME}"):
        found = status.read(path)
        if found is None or (found.run, found.store) != (run, store):
            continue
        with suppress(OSError):  # it has ended meanwhile, and removed it
            alive = status.lived_at(found.pid, path.stat().st_mtime)
            if alive and found.life is not None and found.phase not in ("draining", "ended"):
                return found.pid
    return None
