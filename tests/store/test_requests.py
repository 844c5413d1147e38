from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.checkpoints import Clock, keys
from outlive.errors import ConfigError
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.requests import put_request, read_requests


def test_a_request_reaches_the_inbox_as_it_was_asked() -> None:
    """Kind, life, deadline and who asked arrive; times are the store's."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    two_hours = store.now() + timedelta(hours=2)
    asked = put_request(store, "gpt", "reclaim", life=3, deadline=two_hours, by="me@laptop")
    clock.advance(timedelta(seconds=1))
    save = put_request(store, "gpt", "save", life=None)
    assert read_requests(store, "gpt") == [asked, save]
    assert (asked.kind, asked.life, asked.deadline, asked.by) == ("reclaim", 3, two_hours, "me@laptop")
    assert asked.asked_at == two_hours - timedelta(hours=2)
    assert read_requests(store, "gpt", known={asked.id}) == [save]
    assert read_requests(store, "other") == []


def test_requests_come_oldest_first_and_each_has_its_own_name() -> None:
    """Two requests of the same moment are two requests."""
    store = MemoryStore(clock=Clock())
    asked = {put_request(store, "gpt", "save", life=1).id for _ in range(20)}
    assert len(asked) == 20
    assert [request.id for request in read_requests(store, "gpt")] == sorted(asked)


@given(st.binary(max_size=200))
def test_rubbish_in_the_inbox_is_harmless(rubbish: bytes) -> None:
    """Anyone may put anything there: what is no request is told and passed over."""
    store = MemoryStore()
    good = put_request(store, "gpt", "save", life=None)
    store.put(layout.inbox("gpt", "0-rubbish"), rubbish)
    store.put(layout.inbox("gpt", "1-large"), bytes(100_000))
    store.put("gpt/inbox/.hidden", b"")
    told: list[str] = []
    assert read_requests(store, "gpt", on_rubbish=lambda name, error: told.append(name)) == [good]
    assert told == ["0-rubbish", "1-large"]


@pytest.mark.parametrize("change", [(b'"save"', b'"explode"'), (b'"life":3', b'"life":-3'), (b"T", b" ")])
def test_a_request_that_asks_the_impossible_is_rubbish(change: tuple[bytes, bytes]) -> None:
    """Unknown kinds, impossible lives and times that are none are not guessed at."""
    store = MemoryStore()
    good = put_request(store, "gpt", "save", life=3)
    body = store.get(layout.inbox("gpt", good.id), at_most=9999)
    store.put(layout.inbox("gpt", good.id), body.replace(*change))
    assert read_requests(store, "gpt") == []


def test_a_request_for_a_run_that_can_not_be_is_refused() -> None:
    """Nothing is written outside the store's own tree."""
    store = MemoryStore()
    with pytest.raises(ConfigError):
        put_request(store, "../x", "save", life=None)
    assert keys(store) == []
