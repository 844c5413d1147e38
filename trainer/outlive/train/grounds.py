"""The memory of all ranks of a node, as their first rank owns it (docs/RANKS.md, "One image a node")."""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outlive.staging.arena import Arena
from outlive.staging.messages import ArenaOffer, SnapshotTaken
from outlive.staging.parts import PAGE
from outlive.train.arenas import MAIN, SPARE, Pane, Room
from outlive.train.devices import pin, unpin
from outlive.train.layout import Layout
from outlive.train.link import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One rank's ground."""

    offset: int
    bytes: int


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One of the two arenas, and who has which ground in it."""

    arena: Arena | None = None
    stretches: Mapping[int, Stretch] = field(default_factory=dict)
    sent: int = 0
    pane: Pane | None = None
    """The first rank's own ground."""
    pinned: int = 0
    touching: threading.Thread | None = None


class Others(Protocol):
    """The other ranks of the node."""

    def grounds(self, slot: int, arena: Arena, stretches: Mapping[int, Stretch]) -> None:
        """Tell each of them where its ground is."""

    def permit(self, number: int, slot: int) -> None:
        """Tell them that their grounds are theirs for this snapshot."""

    @property
    def parted(self) -> bool:
        """Whether one of them has ended."""

    def brought(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        """The first rank has copied its own part."""

    def give_up(self, why: str) -> None:
        """Nothing comes of the snapshot under way."""


class Grounds:
    """What :class:`outlive.train.arenas.Arenas` is to an only rank. The council's thread uses it, too."""

    def __init__(self, link: Link, others: Others, *, rank: int, local: range, first: Arena | None) -> None:
        self.number = 0
        """Of the last snapshot of this rank in this conversation; 0 = none yet."""
        self._link = link
        self._others = others
        self._rank = rank
        self._local = local
        self._rooms: dict[int, int] = {}
        self._slots = {MAIN: Slot(arena=first), SPARE: Slot()}
        self._permitted: tuple[int, int] | None = None
        self._last = 0
        self._guard = threading.RLock()

    # -- for the council and the crew

    def room(self, rank: int, size: int) -> None:
        """This rank's snapshots have this size from now on."""
        with self._guard:
            self._rooms[rank] = size
            if self._vacant(MAIN):
                self._settle(MAIN)

    def vacant(self, stop: bool) -> str | None:
        """None if a snapshot could be taken now, else why not."""
        with self._guard:
            if len(self._rooms) < len(self._local):
                return "is not ready yet"
            if self._others.parted:
                return "has ranks that have ended"
            try:
                busy = self._permitted is not None or self._slot_for(stop) is None
            except (OSError, MemoryError) as error:
                return f"has no memory for it ({error})"
            except EOFError:
                return "has no agent"
            return "is busy" if busy else None

    def permit(self, stop: bool) -> bool:
        """Open an arena for a snapshot by all. What it held is lost."""
        with self._guard:
            slot = self._slot_for(stop) if self._permitted is None and self.vacant(stop) is None else None
            if slot is None:
                return False
            self._last += 1
            self._permitted = (self._last, slot)
            self._link.page.begin(slot, self._last)
            self._others.permit(self._last, slot)
            return True

    def closed(self, *, sent: bool) -> None:
        """The snapshot under way is the agent's now, or is given up."""
        with self._guard:
            if self._permitted is not None:
                number, slot = self._permitted
                if sent:
                    self._slots[slot].sent = number
                self._permitted = None

    @property
    def open(self) -> tuple[int, int] | None:
        """Number and arena of the snapshot that is under way."""
        return self._permitted

    def stretches(self, slot: int) -> Mapping[int, Stretch]:
        """Who has which ground."""
        return self._slots[slot].stretches

    # -- for the saving of this rank

    @property
    def parted(self) -> bool:
        """Whether one of the others has ended."""
        return self._others.parted

    def free(self, *, stop: bool) -> int | None:
        """The arena for which there is a permit that this rank has not used."""
        permitted = self._permitted
        return permitted[1] if permitted is not None and permitted[0] > self.number else None

    def last_free(self) -> int | None:
        """The same, opened now if it can be: the last save of a training needs no agreement."""
        if self._permitted is None:
            self.permit(stop=False)
        return self.free(stop=False)

    def prepare(self, layout: Layout) -> None:
        """Have memory for such an image."""
        self.room(self._rank, layout.size)

    def fits(self, layout: Layout, arena: int) -> bool:
        """Whether the ground is large enough; if not, a larger one is made for the next snapshot."""
        if layout.size <= self._slots[arena].stretches[self._rank].bytes:
            return True
        self.room(self._rank, layout.size)
        return False

    def begin(self, layout: Layout, arena: int) -> Room:
        """Room for the snapshot that is permitted."""
        assert self._permitted is not None  # noqa: S101 - `free` said so
        slot = self._slots[arena]
        assert slot.pane is not None  # noqa: S101 - it was settled
        return Room(arena=arena, number=self._permitted[0], windows=slot.pane.windows(layout))

    def hand_over(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        """This rank's part is copied."""
        self.number = packet.number
        self._others.brought(packet, values=values, table=table)

    def give_up(self) -> None:
        """Nothing comes of this rank's part, so nothing comes of the snapshot."""
        if self._permitted is not None:
            self.number = self._permitted[0]
            self._others.give_up(f"rank {self._rank} could not copy its part")

    def move_to(self, link: Link) -> None:
        """Offer the same memory to another agent."""
        self._others.give_up("the agent is gone")  # outside the guard: the others' own lock comes first
        with self._guard:
            self._link = link
            self.number = 0
            for number, slot in self._slots.items():
                slot.sent = 0
                if slot.arena is not None:
                    link.send(ArenaOffer(arena=number, bytes=slot.arena.bytes), slot.arena.fd)

    def close(self) -> None:
        with self._guard:
            for slot in self._slots.values():
                self._drop(slot)

    def _slot_for(self, stop: bool) -> int | None:
        for number in (MAIN, SPARE) if stop else (MAIN,):
            if self._vacant(number):
                self._settle(number)
                return number
        return None

    def _vacant(self, number: int) -> bool:
        """Whether neither the agent nor a snapshot under way has this arena."""
        busy = self._permitted is not None and self._permitted[1] == number
        return not busy and self._link.page.freed(number) == self._slots[number].sent

    def _settle(self, number: int) -> None:
        """Give everyone a ground of the size it has asked for, in memory that is nobody else's now."""
        if len(self._rooms) < len(self._local):
            return
        slot = self._slots[number]
        if all(
            rank in slot.stretches and slot.stretches[rank].bytes >= self._rooms[rank] for rank in self._local
        ):
            return
        stretches, end = {}, 0
        for rank in self._local:
            stretches[rank] = Stretch(offset=end, bytes=self._rooms[rank])
            end += -(-self._rooms[rank] // PAGE) * PAGE
        if slot.arena is None or slot.arena.bytes < end:
            self._drop(slot)
            slot.arena = Arena.create(end)
            self._link.send(ArenaOffer(arena=number, bytes=end), slot.arena.fd)
        own = stretches[self._rank]
        slot.stretches = stretches
        slot.pane = Pane(slot.arena.view[own.offset : own.offset + own.bytes])
        self._join(slot)
        slot.touching = threading.Thread(
            target=self._touch, args=(slot, own), name="outlive-prefault", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # no thread to be had: then the first save touches it
            slot.touching.start()
        self._others.grounds(number, slot.arena, stretches)

    def _touch(self, slot: Slot, own: Stretch) -> None:
        """Off the training's thread, as the first touch of memory takes ten times as long as its copying."""
        if slot.arena is not None and not slot.pinned:
            slot.arena.prefault(own.offset, own.bytes)
            slot.pinned = pin(slot.arena.view[own.offset : own.offset + own.bytes])

    def _join(self, slot: Slot) -> None:
        if slot.touching is not None and slot.touching.ident is not None:
            slot.touching.join()

    def _drop(self, slot: Slot) -> None:
        self._join(slot)
        unpin(slot.pinned)
        slot.pane, slot.pinned = None, 0
        if slot.arena is not None:
            slot.arena.close()
            slot.arena = None
