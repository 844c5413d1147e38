"""What is said to one trainer, and the memory it shares with us."""

import os
from collections.abc import Iterable
from dataclasses import replace

from outlive.errors import ProtocolError
from outlive.staging.arena import Arena, notes_to_fd, read_notes
from outlive.staging.channel import Channel
from outlive.staging.control import ARENAS, ControlPage
from outlive.staging.messages import (
    Accepted,
    ArenaOffer,
    Ended,
    Fresh,
    Hello,
    Message,
    Mode,
    Refused,
    Restored,
    SnapshotTaken,
    Welcome,
)
from outlive.staging.parts import parts_of
from outlive_agent.held import Held

SEND_SECONDS = 2.0
"""How long a trainer that does not read its packets may hold us up."""
STILL_OURS = 1 << 63
"""In a page's freed word: the restored state is being uploaded from that arena."""


class Conversation:
    """One trainer, from hello to its end. Only the deciding thread uses it."""

    def __init__(self, channel: Channel, hello: Hello, *, life: int) -> None:
        self.channel = channel
        self.hello = hello
        self.life = life
        self.pid = channel.peer.pid
        self.page = ControlPage.create()
        self.ready = False
        """It has its state, so that it can be asked for saves."""
        self.ended: Ended | None = None
        self.gone = False
        self._arenas: dict[int, Arena] = {}
        self._lent: Held | None = None
        self._last_number = 0
        self._held_numbers: dict[int, int] = {}

    def welcome(self, *, run: str, nonce: str, mode: Mode, store: str) -> None:
        """Tell the trainer who it is."""
        packet = Welcome(run=run, life=self.life, nonce=nonce, mode=mode, store=store)
        self._send(packet, [self.page.fd])

    def give(self, held: Held | None, *, seconds: float, uploading: bool) -> Held | None:
        """Give the trainer its state, or say there is none. Returns the state as it is held from now on."""
        self.ready = True
        if held is None:
            self._send(Fresh())
            return None
        self._arenas[0] = held.arena
        if uploading:
            self.page.free(0, STILL_OURS)
        lent = self._lent = replace(held, page=self.page, number=0, slot=0)
        notes = notes_to_fd(held.notes.table, held.notes.values)
        try:
            packet = Restored(
                life=held.life,
                step=held.step,
                epoch=held.epoch,
                world=held.world,
                bytes=held.bytes,
                table=len(held.notes.table),
                values=len(held.notes.values),
                source=held.source,
                seconds=seconds,
            )
            self._send(packet, [held.arena.fd, notes])
        finally:
            os.close(notes)
        return lent

    def offered(self, packet: ArenaOffer, fds: tuple[int, ...]) -> None:
        """The trainer has memory for snapshots."""
        if len(fds) != 1 or packet.arena >= ARENAS:
            close_all(fds)
            raise ProtocolError(f"arena {packet.arena} was offered with {len(fds)} descriptors")
        if packet.arena in self._held_numbers:
            close_all(fds)
            raise ProtocolError(f"arena {packet.arena} was replaced while it held a snapshot")
        self._arenas[packet.arena] = Arena.attach(fds[0], packet.bytes, writable=False)

    def taken(self, packet: SnapshotTaken, fds: tuple[int, ...]) -> Held:
        """The trainer took a snapshot; it is ours from here on. See :meth:`accepted`."""
        try:
            if len(fds) != 1:
                raise ProtocolError(f"a snapshot came with {len(fds)} descriptors instead of one")
            arena = self._arenas.get(packet.arena)
            if arena is None or packet.bytes > arena.bytes or packet.arena in self._held_numbers:
                raise ProtocolError(
                    f"snapshot {packet.number} lies in arena {packet.arena}, which can't hold it"
                )
            if packet.number <= self._last_number:
                raise ProtocolError(f"snapshot {packet.number} came after {self._last_number}")
            notes = read_notes(fds[0], packet.table, packet.values)
            parts_of(notes, world=packet.world, image_bytes=packet.bytes)
        finally:
            close_all(fds)
        self._last_number = packet.number
        self._held_numbers[packet.arena] = packet.number
        return Held(
            arena=arena,
            notes=notes,
            page=self.page,
            life=self.life,
            step=packet.step,
            epoch=packet.epoch,
            world=packet.world,
            bytes=packet.bytes,
            number=packet.number,
            slot=packet.arena,
            reason=packet.reason,
            metrics=packet.metrics,
            environment=packet.environment,
            copy_seconds=packet.copy_seconds,
            stop=packet.stop,
            source="memory",
        )

    def accepted(self, held: Held) -> None:
        """Tell the trainer that this snapshot's bytes are safe from its death."""
        self.tell(Accepted(number=held.number))

    def carry_over(self, held: Held, *, uploading: bool) -> Held:
        """The trainer lives, and its last agent left this in an arena of its. Returns it as it is held now.

        To be called before the welcome: afterwards the trainer goes by this conversation's page.
        """
        if uploading:
            self.page.free(held.slot, STILL_OURS)
        lent = self._lent = replace(held, page=self.page, number=0)
        return lent

    def done_with(self, held: Held) -> None:
        """The bytes are not needed any more: the arena is the trainer's again."""
        if held.page is self.page:
            self._held_numbers.pop(held.slot, None)
            self.page.free(held.slot, held.number)
            return
        lent = self._lent
        if lent is not None and held.arena is lent.arena and self.page.freed(lent.slot) == STILL_OURS:
            self.page.free(lent.slot, 0)

    def refuse(self, message: str, *, hint: str = "") -> None:
        """The trainer must not train (any more)."""
        self.tell(Refused(message=message, hint=hint))

    def tell(self, packet: Message) -> None:
        """Say something the trainer can do without: one that has gone or hangs is found out elsewhere."""
        try:
            self._send(packet)
        except (EOFError, TimeoutError):
            return

    def close(self) -> None:
        """Hang up, and let go of the memory; what somebody else still holds of it stays."""
        self.gone = True
        self.channel.close()
        self._arenas.clear()
        self._lent = None

    def _send(self, packet: Message, fds: Iterable[int] = ()) -> None:
        self.channel.send(packet, tuple(fds), timeout=SEND_SECONDS)


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors that came with a packet and are not wanted."""
    for fd in fds:
        os.close(fd)
