"""What a guard was asked to do: the same for all three ways to start one."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from outlive.objects.interface import ObjectStore
from outlive.store.lives import Life
from outlive.store.retention import Keep
from outlive_agent.journal import Journal
from outlive_agent.kept import KeptLife
from outlive_agent.kept_memory import KeptMemory
from outlive_agent.notify import Notify
from outlive_agent.runtime import DrainLock
from outlive_agent.settings.values import Every, HookSettings, ReclaimSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``rewind``: resume from this step on purpose. ``taken_over``: a life that lost its agent.

    ``patient``: wait for a store that can't be reached for as long as it takes, instead of giving up.
    """

    run: str
    location: str
    """The store as it was named; never holds a secret."""
    place: str
    """Location and endpoint: what is known of a bucket is known of one place."""
    command: tuple[str, ...]
    every: Every
    keep: Keep
    stop_grace_seconds: float
    restarts: int
    stop_window_seconds: float | None = None
    """From SIGTERM to SIGKILL, where somebody told."""
    named: bool = True
    """Whether somebody chose the run's name."""
    rewind: int | None = None
    taken_over: Life | None = None
    patient: bool = False
    reclaim: ReclaimSettings = field(default_factory=ReclaimSettings)
    hooks: HookSettings = field(default_factory=HookSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a guard works: its store, its own directory on this machine, and who hears of it."""

    store: ObjectStore
    closing: threading.Event
    """Once set the store tries nothing again."""
    directory: Path
    lock: DrainLock
    journal: Journal
    notify: Notify
    kept: KeptLife | None = None
    """Where the life is kept for an agent that replaces this one; None where nothing does."""
    memory: KeptMemory | None = None
    """The same for the newest state."""
