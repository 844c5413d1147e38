"""A rank that is not the first of its node: its talk with that one, and its ground in its memory."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outlive.errors import ConfigError, ProtocolError
from outlive.staging.arena import Arena, notes_to_fd
from outlive.staging.channel import connect
from outlive.staging.messages import Failed as FailedPacket
from outlive.staging.messages import Ground, Message, Permit, Room, SnapshotTaken
from outlive.train.arenas import Pane
from outlive.train.arenas import Room as Place
from outlive.train.council import JobStore
from outlive.train.devices import pin, unpin
from outlive.train.layout import Layout
from outlive.train.link import Link, Stopped
from outlive.train.ranks import Ranks

CREW_SECONDS = 120.0
"""How long the first rank may take to attach before the others."""
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of the first rank's memory that is this rank's."""

    arena: Arena
    offset: int
    bytes: int
    pinned: int = 0

    @property
    def view(self) -> memoryview:
        return self.arena.view[self.offset : self.offset + self.bytes]


class MemberLink(Link):
    """The conversation with the first rank, which answers as an agent does."""

    def __init__(self, path: str) -> None:
        super().__init__(connect(path))
        self.pieces: dict[int, Piece] = {}
        self.permit: Permit | None = None

    def _hear(self, message: Message, fds: Sequence[int]) -> None:
        if isinstance(message, Ground) and len(fds) == 1:
            self._take_ground(message, os.dup(fds[0]))
        elif isinstance(message, Permit):
            self.results.pop(message.number, None)
            self.permit = message
        else:
            super()._hear(message, fds)

    def let_go(self) -> None:
        """Of all ground."""
        for piece in self.pieces.values():
            unpin(piece.pinned)
        self.pieces.clear()

    def _take_ground(self, ground: Ground, fd: int) -> None:
        """Touched here and not at the first copy, which would take ten times as long."""
        arena = Arena.attach(fd, ground.size)
        arena.prefault(ground.offset, ground.bytes)
        former = self.pieces.get(ground.arena)
        if former is not None:
            unpin(former.pinned)
        piece = Piece(arena=arena, offset=ground.offset, bytes=ground.bytes)
        self.pieces[ground.arena] = replace(piece, pinned=pin(piece.view))


class Grounded:
    """What :class:`outlive.train.arenas.Arenas` is to the only rank: here the memory is the first rank's."""

    def __init__(self, link: MemberLink) -> None:
        self.number = 0
        self._link = link
        self._asked = -1
        self._panes: dict[int, tuple[Piece, Pane]] = {}

    @property
    def parted(self) -> bool:
        """Whether the first rank has gone."""
        return self._link.lost

    def free(self, *, stop: bool) -> int | None:
        """The arena for which there is a permit."""
        permit = self._link.permit
        if permit is None or permit.number <= self.number or permit.arena not in self._link.pieces:
            return None
        return permit.arena

    def last_free(self) -> int | None:
        """The same: the first rank gives the last permit, too."""
        return self.free(stop=False)

    def prepare(self, layout: Layout) -> None:
        """Ask for a ground."""
        if layout.size != self._asked:
            self._link.send(Room(bytes=layout.size))
            self._asked = layout.size

    def fits(self, layout: Layout, arena: int) -> bool:
        """Whether the ground is large enough; if not, a larger one is asked for."""
        if layout.size <= self._link.pieces[arena].bytes:
            return True
        self.prepare(layout)
        return False

    def begin(self, layout: Layout, arena: int) -> Place:
        """Room for the snapshot that is permitted."""
        permit, piece = self._link.permit, self._link.pieces[arena]
        assert permit is not None  # noqa: S101 - `free` said so
        known = self._panes.get(arena)
        if known is None or known[0] is not piece:
            self._panes[arena] = known = (piece, Pane(piece.view))
        return Place(arena=arena, number=permit.number, windows=known[1].windows(layout))

    def hand_over(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        """Give the first rank what goes with the ground. ``EOFError`` if it has gone."""
        notes = notes_to_fd(table, values)
        try:
            self._link.send(packet, notes)
        finally:
            os.close(notes)
        self.number = packet.number

    def give_up(self) -> None:
        """Nothing comes of the permitted snapshot."""
        permit = self._link.permit
        if permit is not None and permit.number > self.number:
            self.number = permit.number
            self._link.send(FailedPacket(number=permit.number, message="it could not be copied"))

    def move_to(self, link: Link) -> None:
        """Only the first rank finds another agent."""
        raise ProtocolError("the first rank of this node is gone")

    def close(self) -> None:
        self._panes.clear()
        self._link.let_go()


def join_first(
    ranks: Ranks, store: JobStore, *, stopped: Callable[[], bool], say: Callable[[str], None]
) -> MemberLink:
    """Connect to the first rank of this node, once it says where. ``ConfigError`` if it never does."""
    key, deadline = f"crew/{ranks.node}", time.monotonic() + CREW_SECONDS
    while not store.check([key]):
        if stopped():
            raise Stopped
        if time.monotonic() > deadline:
            raise ConfigError(
                f"rank {ranks.node} has not attached within {CREW_SECONDS:.0f} s",
                hint="every rank must call outlive.attach",
            )
        time.sleep(_LOOK_SECONDS)
    return MemberLink(store.get(key).decode())
