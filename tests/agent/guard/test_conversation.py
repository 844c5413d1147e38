"""One trainer's packets against the agent's end: what is shared, whose it is, and what is refused."""

import os
from collections.abc import Iterator

import pytest

from outlive.errors import ProtocolError
from outlive.staging.arena import Arena, Notes, notes_to_fd
from outlive.staging.channel import Channel
from outlive.staging.control import ControlPage
from outlive.staging.messages import Accepted, ArenaOffer, Hello, Restored, SnapshotTaken, Welcome
from outlive.store.lives import Life
from outlive_agent.conversation import STILL_OURS, Conversation
from outlive_agent.held import Held
from outlive_agent.hello import check_hello


class Ends:
    """Both ends of one conversation in this process."""

    def __init__(self) -> None:
        ours, self.trainer = Channel.pair()
        self.talk = Conversation(ours, Hello(pid=os.getpid()), life=3)
        self.talk.welcome(run="t", nonce="ab", mode="exec", store="/store")
        message, fds = self.trainer.receive(1)
        assert isinstance(message, Welcome)
        self.page = ControlPage.attach(fds[0])

    def offer(self, slot: int, size: int) -> Arena:
        arena = Arena.create(size)
        self.talk.offered(ArenaOffer(arena=slot, bytes=size), (os.dup(arena.fd),))
        return arena

    def take(self, number: int, *, slot: int = 0, size: int = 8) -> Held:
        packet = SnapshotTaken(
            number=number, arena=slot, step=number * 10, reason="hand", bytes=size, table=1, values=2
        )
        held = self.talk.taken(packet, (notes_to_fd(b"t", b"vv"),))
        self.talk.accepted(held)
        return held

    def close(self) -> None:
        self.page.close()
        self.trainer.close()
        self.talk.close()
        self.talk.page.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A conversation after its welcome."""
    ends = Ends()
    yield ends
    ends.close()


def test_snapshot_is_ours_until_freed(ends: Ends) -> None:
    """A snapshot is accepted at once, and its arena is the trainer's again when it was freed."""
    with ends.offer(0, 16) as arena:
        arena.view[:4] = b"abcd"
        held = ends.take(1)
        assert ends.trainer.receive(1).message == Accepted(number=1)
        assert (bytes(held.arena.view[:4]), held.notes, held.step) == (b"abcd", Notes(b"t", b"vv"), 10)
        assert ends.page.freed(0) == 0
        ends.talk.done_with(held)
        assert ends.page.freed(0) == 1


def test_snapshot_is_intact_until_the_next_copy_begins(ends: Ends) -> None:
    """The memory of a freed snapshot serves a restart until something is copied over it."""
    with ends.offer(0, 16):
        ends.page.begin(0, 1)
        held = ends.take(1)
        ends.talk.done_with(held)
        assert held.intact
        ends.page.begin(0, 2)
        assert not held.intact


def test_restored_memory_that_is_still_being_uploaded(ends: Ends) -> None:
    """A trainer restarted from memory must not write there before the upload from it is done."""
    arena = Arena.create(8)
    held = Held(
        arena=arena, notes=Notes(b"t", b"vv"), life=3, step=20, epoch=1, bytes=8, number=4, source="memory"
    )
    lent = ends.talk.give(held, seconds=0.0, uploading=True)
    message, fds = ends.trainer.receive(1)
    assert isinstance(message, Restored)
    assert (message.life, message.step, message.epoch, message.source) == (3, 20, 1, "memory")
    assert ends.page.freed(0) == STILL_OURS
    ends.talk.done_with(held)
    assert ends.page.freed(0) == 0
    assert lent is not None
    assert lent.intact
    for fd in fds:
        os.close(fd)


def test_what_a_trainer_must_not_do(ends: Ends) -> None:
    """Numbers that don't grow, arenas that aren't there, hold one already, or are too small: all refused."""
    with pytest.raises(ProtocolError):
        ends.take(1)
    with ends.offer(0, 16), ends.offer(1, 16):
        with pytest.raises(ProtocolError):
            ends.take(1, size=17)
        ends.take(5)
        with pytest.raises(ProtocolError):
            ends.take(6)
        with pytest.raises(ProtocolError):
            ends.take(5, slot=1)
        with pytest.raises(ProtocolError):
            ends.offer(0, 32)
        with pytest.raises(ProtocolError):
            ends.offer(2, 16)
        with pytest.raises(ProtocolError):
            ends.talk.offered(ArenaOffer(arena=1, bytes=16), ())


_LIFE = Life(run="t", number=3, nonce="ab")


@pytest.mark.parametrize(
    ("hello", "circumstances", "reason"),
    [
        (Hello(pid=1, protocol=2), {}, "protocol"),
        (Hello(pid=1, world=4, rank=1), {}, "4 ranks"),
        (Hello(pid=1), {"busy": True}, "another training"),
        (Hello(pid=1), {"stopping": True}, "being stopped"),
        (Hello(pid=1, life=2, nonce="ab"), {}, "life 2"),
        (Hello(pid=1, life=3, nonce="cd"), {}, "life 3"),
        (Hello(pid=1), {"taken_over": True}, "taken over"),
    ],
)
def test_who_may_not_train(hello: Hello, circumstances: "dict[str, bool]", reason: str) -> None:
    """Each trainer that can't be guarded is told why."""
    given = {"busy": False, "stopping": False, "taken_over": False, **circumstances}
    with pytest.raises(ProtocolError, match=reason):
        check_hello(hello, life=_LIFE, **given)


def test_who_may_train() -> None:
    """A new trainer may, and one that already is of this life."""
    for hello in (Hello(pid=1), Hello(pid=1, life=3, nonce="ab")):
        check_hello(hello, life=_LIFE, busy=False, stopping=False, taken_over=False)
