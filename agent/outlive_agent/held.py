"""A state in memory that trainer and agent share: what was restored, or a snapshot that was accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlive.staging.arena import Arena, Notes
from outlive.staging.control import ControlPage
from outlive.staging.messages import Reason
from outlive.staging.parts import PartNotes, parts_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """``number`` is the snapshot's; 0 is the restored state that a trainer was given in arena 0."""

    arena: Arena = field(repr=False)
    notes: Notes = field(repr=False)
    page: ControlPage | None = field(repr=False, default=None)
    life: int
    step: int
    epoch: int | None
    world: int = 1
    """Above 1 it is the state of all ranks: the notes begin with an index."""
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
    def parts(self) -> tuple[PartNotes, ...]:
        """What each rank saved. ``ProtocolError`` if the notes of several can't be told apart."""
        return parts_of(self.notes, world=self.world, image_bytes=self.bytes)

    @property
    def intact(self) -> bool:
        """Whether the memory still holds this state: no later one has begun to be copied over it."""
        return self.page is None or self.page.begun(self.slot) == self.number

    @property
    def ours(self) -> bool:
        """Whether no trainer may copy anything into this memory: it was not given back."""
        return self.page is None or self.page.freed(self.slot) != self.number
