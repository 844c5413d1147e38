"""History and inbox stay bounded, and what the history of a life with checkpoints needs is never among it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from fakes.checkpoints import Clock, begin, keys, snapshot
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.events import EventLog, read_events
from outlive.store.leftovers import TOLD_LIVES, WHOLE_LIVES
from outlive.store.lives import Life
from outlive.store.prune import plan_prune, prune
from outlive.store.requests import put_request
from outlive.store.retention import Keep

DAY = timedelta(days=1, seconds=1)
TOLD = ("started", "restored", "training", "save-failed", "notice", "plan", "ended")
ENDING = ["training", "notice", "ended"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


def lived(store: MemoryStore, number: int) -> None:
    """A life of long ago that left no checkpoint."""
    store.put(layout.life("gpt", number), b"{}")
    log = EventLog(store, Life(run="gpt", number=number, nonce="0" * 32))
    for event in TOLD:
        log.write(event)


def owner_of(store: MemoryStore) -> Committer:
    owner = begin(store)
    owner.commit(snapshot(owner.life.number, b"x"))
    return owner


def told(store: MemoryStore, life: int) -> list[str]:
    return [event.event for event in read_events(store, "gpt", life=life)]


def test_old_lives_keep_how_they_ended_and_the_oldest_nothing(store: MemoryStore, clock: Clock) -> None:
    """The last lives keep every event, older ones those of their line in the history, the oldest none."""
    newest = TOLD_LIVES + 10
    lives = (1, 10, 11, newest - WHOLE_LIVES, newest - WHOLE_LIVES + 1, newest - 1)
    for number in lives:
        lived(store, number)
    owner = owner_of(store)
    assert owner.life.number == newest
    assert prune(store, "gpt", Keep(), owner=owner).leftovers == ()  # they are young
    clock.advance(DAY)
    plan = prune(store, "gpt", Keep(), owner=owner)
    kept = [told(store, number) for number in lives]
    assert kept == [[], [], ENDING, ENDING, [*TOLD], [*TOLD]]
    assert len(plan.leftovers) == 2 * len(TOLD) + 2 * (len(TOLD) - len(ENDING))
    assert plan_prune(store, "gpt", Keep(), owner=owner).leftovers == ()


def test_a_life_whose_checkpoints_stay_keeps_its_history(store: MemoryStore, clock: Clock) -> None:
    """However old it is: a rewind may lead there, and someone will want to know."""
    first = owner_of(store)
    log = EventLog(store, first.life)
    for event in TOLD:
        log.write(event)
    lived(store, TOLD_LIVES + 10)
    owner = owner_of(store)
    clock.advance(DAY)
    prune(store, "gpt", Keep(last=2), owner=owner)
    assert told(store, 1) == [*TOLD]


def test_requests_that_nobody_can_act_on_go(store: MemoryStore, clock: Clock) -> None:
    """Those for earlier lives, those whose time has passed, and rubbish; never one that is still to come."""
    lived(store, 1)
    owner = owner_of(store)

    def ask(life: "int | None", deadline: "timedelta | None") -> str:
        until: datetime | None = None if deadline is None else store.now() + deadline
        return layout.inbox("gpt", put_request(store, "gpt", "reclaim", life=life, deadline=until).id)

    going = [
        ask(1, 9 * DAY),
        ask(2, DAY / 2),
        ask(None, None),
        ask(None, DAY / 2),
        layout.inbox("gpt", "rubbish"),
    ]
    store.put(going[-1], b"rubbish")
    staying = [ask(2, 9 * DAY), ask(None, 9 * DAY), "gpt/inbox/readme.txt"]
    store.put(staying[-1], b"somebody's own")
    assert prune(store, "gpt", Keep(), owner=owner).leftovers == ()
    clock.advance(DAY)
    young = ask(1, None)
    assert sorted(prune(store, "gpt", Keep(), owner=owner).leftovers) == sorted(going)
    assert keys(store, "gpt/inbox/") == sorted([*staying, young])


def test_a_month_of_lives_leaves_a_bounded_store(store: MemoryStore, clock: Clock) -> None:
    """What a life leaves for good is its claim, what it resumed from, and how it ended."""
    counts: list[int] = []
    for _ in range(WHOLE_LIVES + 20):
        owner = begin(store)
        log = EventLog(store, owner.life)
        for event in TOLD:
            log.write(event)
        put_request(store, "gpt", "reclaim", life=owner.life.number)
        step = owner.parent.step if owner.parent else 0
        for more in (1, 2, 3):
            owner.commit(snapshot(step + more, b"frozen", b"%d" % (step + more)))
        clock.advance(DAY)
        for _ in range(2):
            prune(store, "gpt", Keep(last=2), owner=owner)
        counts.append(len(keys(store)))
    assert growth(counts, since=WHOLE_LIVES + 5) == {2 + len(ENDING)}
    assert len(keys(store, "gpt/chunks/")) < 20
    assert len(keys(store, "gpt/inbox/")) <= 1


def growth(counts: Sequence[int], *, since: int) -> set[int]:
    return {after - before for before, after in zip(counts[since:-1], counts[since + 1 :], strict=True)}
