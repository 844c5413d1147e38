"""A state in memory that trainer and agent share: what was restored, or a snapshot that was accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlive.staging.arena import Arena, Notes
from outlive.staging.control import ControlPage
from outlive.staging.messages import Reason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """``number`` is the snapshot's; 0 is the restored state that a trainer was given in arena 0."""

    arena: Arena = field(repr=False)
    notes: Notes = field(repr=False)
    page: ControlPage | None = field(repr=False, default=None)
    life: int
    step: int
    epoch: int | None
    bytes: int
    number: int = 0
    slot: int = 0
    reason: Reason = "hand"
    metrics: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    copy_seconds: float = 0.0
    stop: bool = False
    source: str = ""

    @property
    def intact(self) -> bool:
        """Whether the memory still holds this state: no later one has begun to be copied over it."""
        return self.page is None or self.page.begun(self.slot) == self.number

    @property
    def ours(self) -> bool:
        """Whether no trainer may copy anything into this memory: it was not given back."""
        return self.page is None or self.page.freed(self.slot) != self.number
