"""The other ranks of a node, as their first rank sees them: to them it is what an agent is to a training."""

import os
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from outlive.errors import ProtocolError
from outlive.staging.arena import Arena, Notes, notes_to_fd, read_notes
from outlive.staging.channel import Channel, Listener
from outlive.staging.control import ControlPage
from outlive.staging.messages import (
    Accepted,
    Committed,
    Ended,
    Failed,
    Fresh,
    Ground,
    Hello,
    Message,
    Permit,
    Refused,
    Room,
    SnapshotTaken,
)
from outlive.staging.parts import PartNotes, encode_parts
from outlive.train.grounds import Grounds, Stretch
from outlive.train.link import Given, Link
from outlive.train.ranks import Ranks

PART_SECONDS = 120.0
"""How long the last rank's part of a snapshot may come after the first one's."""
PARTING_SECONDS = 20.0
"""How long the first rank waits at the end for the others' last words."""
_SEND_SECONDS = 10.0
_HELLO_SECONDS = 30.0
_LOOK_SECONDS = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One of the others."""

    rank: int
    channel: Channel
    page: ControlPage = field(default_factory=ControlPage.create)
    over: bool = False


class Crew:
    """Made by the first rank before it finds its agent; :meth:`begin` answers the others."""

    def __init__(self, ranks: Ranks, *, say: Callable[[str], None]) -> None:
        self._ranks = ranks
        self._say = say
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-crew-"))
        self.path = str(self._folder / "socket")
        self._listener = Listener(self.path, uids=[os.getuid()])
        self._members: dict[int, Member] = {}
        self._changed = threading.Condition(threading.RLock())
        self._brought: dict[int, tuple[SnapshotTaken, Notes]] = {}
        self._since = 0.0
        self._closing = False
        self._link: Link
        self._grounds: Grounds

    def begin(self, link: Link, given: Given | None) -> Grounds:
        """Tell the others, as they come, what this rank was told. Returns the memory that all share."""
        self._link = link
        local = range(self._ranks.node, self._ranks.node + self._ranks.local_world)
        first = None if given is None else given.arena
        self._grounds = Grounds(link, self, rank=self._ranks.rank, local=local, first=first)
        link.relay = self._relay
        self._thread("outlive-crew", lambda: self._welcome_all(given))
        return self._grounds

    def succeeded(self, link: Link) -> None:
        """Another agent has taken the place of the one before."""
        self._link = link
        link.relay = self._relay

    def refuse(self, message: str, *, hint: str) -> None:
        """There is no agent for them: they are told so, as they come."""
        self._thread("outlive-crew", lambda: self._refuse_all(Refused(message=message, hint=hint)))

    def close(self, *, patient: bool) -> None:
        """Wait for the last words of the others, for a while if `patient`, and hang up."""
        with self._changed:
            if patient:
                self._changed.wait_for(self._all_over, PARTING_SECONDS)
            self._closing = True
        self._listener.close()
        for member in self._members.values():
            member.channel.close()
            member.page.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- what Grounds asks of the others

    def grounds(self, slot: int, arena: Arena, stretches: Mapping[int, Stretch]) -> None:
        for member in self._members.values():
            own = stretches[member.rank]
            packet = Ground(arena=slot, size=arena.bytes, offset=own.offset, bytes=own.bytes)
            self._tell(member, packet, arena.fd)

    def permit(self, number: int, slot: int) -> None:
        for member in self._members.values():
            self._tell(member, Permit(number=number, arena=slot))

    @property
    def parted(self) -> bool:
        return any(member.over for member in self._members.values())

    def brought(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        self._bring(self._ranks.rank, packet, Notes(table, values))

    def give_up(self, why: str) -> None:
        """Nothing comes of the snapshot under way: everyone is told, and what they saved is not saved."""
        with self._changed:
            self._brought.clear()
            if self._grounds.open is None:
                return
            number, _ = self._grounds.open
            self._grounds.closed(sent=False)
            self._link.fail(number, why)
        self._relay(Failed(number=number, message=why))
        self._say(f"a snapshot is given up: {why}; the last checkpoint stands")

    # -- the others

    def _welcome_all(self, given: Given | None) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not self._closing and len(self._members) < self._ranks.local_world - 1:
            if not poll.poll(200):
                continue
            try:
                self._welcome(self._listener.accept(), given)
            except (ProtocolError, OSError, EOFError, TimeoutError) as error:
                self._say(f"a rank could not be let in: {error}")
        while not self._closing:
            self._late()
            time.sleep(_LOOK_SECONDS)

    def _refuse_all(self, refused: Refused) -> None:
        with suppress(ProtocolError, OSError, EOFError, TimeoutError):
            while True:
                channel = self._listener.accept()
                channel.receive(_HELLO_SECONDS)
                channel.send(refused, timeout=_SEND_SECONDS)

    def _late(self) -> None:
        """Give up a snapshot whose last parts don't come."""
        with self._changed:
            if self._brought and time.monotonic() - self._since > PART_SECONDS:
                missing = [str(rank) for rank in self._locals() if rank not in self._brought]
                self.give_up(f"rank {', '.join(missing)} did not bring its part within {PART_SECONDS:.0f} s")

    def _welcome(self, channel: Channel, given: Given | None) -> None:
        hello = channel.receive(_HELLO_SECONDS).message
        if not isinstance(hello, Hello) or hello.rank not in self._locals() or hello.rank in self._members:
            channel.close()
            raise ProtocolError("it is none of this node's, or is here already")
        member = Member(rank=hello.rank, channel=channel)
        channel.send(self._link.welcome, [member.page.fd], timeout=_SEND_SECONDS)
        if given is None:
            channel.send(Fresh(), timeout=_SEND_SECONDS)
        else:
            notes = notes_to_fd(given.notes.table, given.notes.values)
            try:
                channel.send(given.packet, [given.arena.fd, notes], timeout=_SEND_SECONDS)
            finally:
                os.close(notes)
        with self._changed:
            self._members[member.rank] = member
        self._thread(f"outlive-rank-{member.rank}", lambda: self._converse(member))

    def _converse(self, member: Member) -> None:
        """Until this rank has ended or died."""
        try:
            while not member.over:
                message, fds = member.channel.receive()
                try:
                    self._hear(member, message, fds)
                finally:
                    for fd in fds:
                        os.close(fd)
        except (EOFError, OSError, ValueError):
            if not self._closing and not member.over:
                self.give_up(f"rank {member.rank} is gone")
        except ProtocolError as error:
            self.give_up(f"rank {member.rank} said what can't be understood: {error}")
        with self._changed:
            member.over = True
            if self._grounds.open is not None and member.rank not in self._brought:
                self.give_up(f"rank {member.rank} has ended")
            self._changed.notify_all()

    def _hear(self, member: Member, message: Message, fds: Sequence[int]) -> None:
        if isinstance(message, Room):
            with suppress(EOFError, OSError, MemoryError):  # it is tried again before the next snapshot
                self._grounds.room(member.rank, message.bytes)
        elif isinstance(message, SnapshotTaken) and len(fds) == 1:
            self._bring(member.rank, message, read_notes(fds[0], message.table, message.values))
        elif isinstance(message, Failed):
            self.give_up(f"rank {member.rank} could not copy its part")
        elif isinstance(message, Ended):
            member.over = True
        else:
            raise ProtocolError(f"a {message.packet} packet came where none can be")

    def _bring(self, rank: int, packet: SnapshotTaken, notes: Notes) -> None:
        """One part is copied. When all are, the agent gets the snapshot."""
        with self._changed:
            if self._grounds.open is None or self._grounds.open[0] != packet.number:
                return  # it was given up meanwhile
            self._since = self._since if self._brought else time.monotonic()
            self._brought[rank] = packet, notes
            if len(self._brought) < self._ranks.local_world:
                return
            steps = {packet.step for packet, _ in self._brought.values()}
            if len(steps) > 1:
                self.give_up(f"the ranks have saved steps {min(steps)} to {max(steps)}")
                return
            brought, self._brought = dict(self._brought), {}
            self._hand_over(brought)

    def _hand_over(self, brought: Mapping[int, tuple[SnapshotTaken, Notes]]) -> None:
        own, _ = brought[self._ranks.rank]
        stretches = self._grounds.stretches(own.arena)
        parts = [
            PartNotes(
                rank=rank,
                offset=stretches[rank].offset,
                bytes=packet.bytes,
                table=notes.table,
                values=notes.values,
            )
            for rank, (packet, notes) in sorted(brought.items())
        ]
        joint = encode_parts(parts)
        packets = [packet for packet, _ in brought.values()]
        whole = replace(
            own,
            world=self._ranks.world,
            bytes=parts[-1].offset + parts[-1].bytes,
            table=len(joint.table),
            values=len(joint.values),
            copy_seconds=max(packet.copy_seconds for packet in packets),
            stall_seconds=max(packet.stall_seconds for packet in packets),
        )
        try:
            fd = notes_to_fd(joint.table, joint.values)
        except (OSError, MemoryError) as error:
            self.give_up(f"there is no memory for its notes: {error}")
            return
        try:
            self._link.send(whole, fd)
        except EOFError:
            self.give_up("the agent is gone")
        else:
            self._grounds.closed(sent=True)
        finally:
            os.close(fd)

    def _relay(self, message: Message) -> None:
        if isinstance(message, Accepted | Committed | Failed | Refused):
            for member in list(self._members.values()):
                self._tell(member, message)

    def _tell(self, member: Member, message: Message, *fds: int) -> None:
        with suppress(EOFError, TimeoutError):  # one that is gone or hangs is found out elsewhere
            member.channel.send(message, fds, timeout=_SEND_SECONDS)

    def _locals(self) -> range:
        return range(self._ranks.node, self._ranks.node + self._ranks.local_world)

    def _all_over(self) -> bool:
        """Whether all have come, and have gone: one may still be about to come when this rank has ended."""
        here = len(self._members) == self._ranks.local_world - 1
        return here and all(member.over for member in self._members.values())

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()
