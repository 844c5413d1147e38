"""How far a life is, written down from time to time, and what that says of one that vanished."""

import io
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

import pytest

from outlive.objects.memory import MemoryStore
from outlive.staging.channel import Channel
from outlive.staging.messages import Hello
from outlive.store.events import Event, read_events
from outlive.store.layout import CheckpointId
from outlive.store.lives import Adoption, Life
from outlive_agent.conversation import Conversation
from outlive_agent.heartbeat import EVERY_SECONDS, Heartbeat
from outlive_agent.history import History
from outlive_agent.journal import Journal
from outlive_agent.story import LifeStory

LIFE = Life(run="t", number=1, nonce="n")
NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


@pytest.fixture
def talk() -> Iterator[Conversation]:
    """A training that has not passed a boundary yet."""
    ours, theirs = Channel.pair()
    talk = Conversation(ours, Hello(pid=1, life=0, nonce="", world=1), life=1)
    yield talk
    talk.close()
    talk.page.close()
    theirs.close()


def test_one_is_left(talk: Conversation) -> None:
    """However long a life trains, one small object says how far it is."""
    store = MemoryStore()
    history = History(store, LIFE, journal=Journal(io.StringIO()))
    heartbeat = Heartbeat()
    for minute in range(100):
        step = 10 * min(minute, 50)
        talk.page.boundary(step, now_ns=1 + minute, epoch=None, step_ns=50_000_000)
        heartbeat.observe(talk, history, 1000.0 + 60 * minute)
    history.record("ended")
    history.close(timeout=20)
    events = read_events(store, "t")
    assert [event.event for event in events] == ["reached", "ended"]
    assert events[0].details == {"step": 500, "step_seconds": 0.05, "every_seconds": EVERY_SECONDS}
    assert events[0].sequence == 16, "it was written each three minutes, as long as steps were made"


def test_vanished_life_is_bounded() -> None:
    """A vanished machine lost at least what it wrote, at most what fits until it had written again."""
    reached = {"step": 1500, "step_seconds": 0.5, "every_seconds": 180.0}
    assert _story([_event("training", {"step": 1}), _event("reached", reached)]).lost_between == (
        500,
        500 + 2 * 190,
    )
    assert _story([_event("training", {"step": 1})]).lost_between == (0, None)


def test_only_the_vanished() -> None:
    """A life that had its last word, or may still train, is not guessed at."""
    ended = _event("ended", {"outcome": "stopped", "step": 1000})
    assert _story([ended]).lost_between is None
    assert _story([], after=False).lost_between is None


def _event(name: str, details: Mapping[str, object]) -> Event:
    return Event(life=1, sequence=0, event=name, at=NOW, details=details)


def _story(events: list[Event], *, after: bool = True) -> LifeStory:
    saved = CheckpointId(1, 1000)
    follower = LifeStory(
        number=2,
        claim=None,
        adoption=Adoption(life=2, checkpoint=saved, nonce="n", rewind=False),
        checkpoints=(),
        events=(),
    )
    return LifeStory(
        number=1,
        claim=None,
        adoption=Adoption(life=1, checkpoint=None, nonce="n", rewind=False),
        checkpoints=(saved,),
        events=tuple(events),
        after=follower if after else None,
    )
