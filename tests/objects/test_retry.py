"""Trying again: what is repeated, when, how often, and what ends it."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from outlive.errors import (
    AlreadyExists,
    Damaged,
    Denied,
    NoBucket,
    NotFound,
    OutliveError,
    StoreError,
    StoreFull,
    Unavailable,
)
from outlive.objects.interface import Body, ObjectInfo, ObjectStore
from outlive.objects.memory import MemoryStore
from outlive.objects.retry import Backoff, Retry, Retrying


class Shaky(MemoryStore):
    """Fails with these errors first. ``late``: the work is done although the answer is lost."""

    def __init__(self, *errors: OutliveError, late: bool = False) -> None:
        super().__init__()
        self.errors = list(errors)
        self.late = late
        self.calls = 0

    def _fail(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        if self.late:
            super().put(key, body, create_only=create_only)
        self._fail()
        if not self.late:
            super().put(key, body, create_only=create_only)

    def get(self, key: str, *, at_most: int) -> bytes:
        self._fail()
        return super().get(key, at_most=at_most)


@dataclass
class Time:
    """A clock that moves only by sleeping."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def retrying(store: ObjectStore, time: Time, *, chance: float = 1.0, **settings: float) -> Retrying:
    backoff = Backoff(**settings)
    return Retrying(store, backoff=backoff, clock=time.clock, sleep=time.sleep, random=lambda: chance)


def test_repeats_until_it_works() -> None:
    """A store that is away three times is asked a fourth time, each time after a longer pause."""
    store, time = Shaky(*[Unavailable("away")] * 3), Time()
    retrying(store, time, first_seconds=1).put("a", b"x")
    assert store.get("a", at_most=1) == b"x"
    assert time.slept == [1, 2, 4]


def test_half_of_the_pause_is_chance() -> None:
    """Many clients that failed together don't come back together."""
    for chance, pauses in ((0.0, [0.5, 1, 2]), (0.5, [0.75, 1.5, 3])):
        time = Time()
        retrying(Shaky(*[Unavailable("away")] * 3), time, chance=chance, first_seconds=1).put("a", b"")
        assert time.slept == pauses


def test_gives_up_at_the_deadline() -> None:
    """No attempt begins after the deadline, pauses are bounded, the error tells how often it was tried."""
    store, time = Shaky(*[Unavailable("away", hint="check it")] * 100), Time()
    with pytest.raises(Unavailable, match=r"away \(tried 9 times in 55 s\)") as caught:
        retrying(store, time, first_seconds=1, most_seconds=10, deadline_seconds=60).get("a", at_most=1)
    assert time.slept == [1, 2, 4, 8, 10, 10, 10, 10]
    assert caught.value.hint == "check it"


@pytest.mark.parametrize("kind", [AlreadyExists, Damaged, Denied, NoBucket, NotFound, StoreFull, StoreError])
def test_what_will_not_change_is_not_repeated(kind: type[OutliveError]) -> None:
    """Permanent errors are passed up as they are, after one attempt."""
    error = kind("final")
    store, time = Shaky(error), Time()
    with pytest.raises(kind) as caught:
        retrying(store, time).get("a", at_most=1)
    assert caught.value is error
    assert (store.calls, time.slept) == (1, [])


def test_a_lost_answer_to_a_create_only_put_is_passed_up() -> None:
    """The object is ours, but that is for the caller to find out by its nonce."""
    store, time = Shaky(Unavailable("answer lost"), late=True), Time()
    with pytest.raises(AlreadyExists):
        retrying(store, time).put("lives/1", b"nonce", create_only=True)
    assert store.get("lives/1", at_most=10) == b"nonce"


def test_each_retry_is_told() -> None:
    """The journal learns what failed, how often, and when it is tried again."""
    told: list[Retry] = []
    error = Unavailable("away")
    time = Time()
    store = Retrying(
        Shaky(error, error), on_retry=told.append, clock=time.clock, sleep=time.sleep, random=lambda: 1.0
    )
    store.put("run/a", b"")
    assert told == [
        Retry(action="put", key="run/a", attempt=number, delay_seconds=delay, error=error)
        for number, delay in ((1, 0.5), (2, 1.0))
    ]


def test_closing_ends_the_waiting() -> None:
    """Once it closes, a wait of hours ends at once with the last error, and nothing is repeated any more."""
    closing, waiting = threading.Event(), threading.Event()
    store = Shaky(*[Unavailable("away")] * 5)
    retrying = Retrying(
        store,
        backoff=Backoff(first_seconds=7200, most_seconds=7200, deadline_seconds=1e6),
        closing=closing,
        on_retry=lambda _: waiting.set(),
    )
    raised: list[OutliveError] = []

    def put() -> None:
        try:
            retrying.put("a", b"")
        except Unavailable as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    assert waiting.wait(10)
    closing.set()
    thread.join(10)
    assert not thread.is_alive()
    assert [str(error) for error in raised] == ["away"]
    with pytest.raises(Unavailable):
        retrying.get("a", at_most=1)
    assert store.calls == 2


def test_a_listing_goes_on_where_it_broke_off() -> None:
    """A listing that breaks twice shows every key once, in order."""

    class Breaking(MemoryStore):
        breaks = 2

        def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            for number, info in enumerate(super().list(prefix, after=after)):
                if number == 3 and self.breaks:
                    self.breaks -= 1
                    raise Unavailable("broke off")
                yield info

    store, time = Breaking(), Time()
    keys = [f"k{number}" for number in range(10)]
    for key in keys:
        store.put(key, b"")
    assert [info.key for info in retrying(store, time).list("k")] == keys
    assert len(time.slept) == 2


def test_everything_else_is_the_stores() -> None:
    """The wrapper adds nothing and hides nothing."""
    inner = MemoryStore()
    store = Retrying(inner)
    assert (store.location, store.limits) == (inner.location, inner.limits)
    store.put("a", b"12")
    buffer = bytearray(2)
    store.read_into("a", memoryview(buffer))
    assert buffer == b"12"
    store.delete(["a"])
    assert list(store.list("")) == []
    assert store.now().tzinfo is not None
