from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.checkpoints import IDENTITY, later_life
from outlive.errors import Damaged
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.events import EventLog, last_event, read_events, write_event
from outlive.store.lives import claim


def test_a_life_tells_its_story_in_order() -> None:
    """Events come back in the order in which they were written, life by life, with what they said."""
    store = MemoryStore()
    one = claim(store, "gpt", identity=IDENTITY)
    log = EventLog(store, one)
    log.write("restored", step=7, seconds=1.5)
    log.write("saved", loss=float("nan"), parts=[{"rank": 0}])
    write_event(store, one, "ended", outcome="finished")
    two = claim(store, "gpt", identity=IDENTITY)
    write_event(store, two, "restored")
    found = read_events(store, "gpt")
    assert [(e.life, e.sequence, e.event) for e in found] == [
        (1, 0, "restored"),
        (1, 1, "saved"),
        (1, 2, "ended"),
        (2, 0, "restored"),
    ]
    assert found[0].details == {"step": 7, "seconds": 1.5}
    assert found[1].details == {"loss": "nan", "parts": [{"rank": 0}]}
    assert read_events(store, "gpt", life=2) == found[3:]
    assert last_event(store, "gpt", 1) == found[2]
    assert last_event(store, "gpt", 3) is None


def test_numbers_are_given_once() -> None:
    """Many threads, and a second log of the same life, never write the same key."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    logs = [EventLog(store, life), EventLog(store, life)]
    logs[0].write("saved")
    logs[1].write("saved")
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(logs[0].write, "saved", step=step) for step in range(40)]:
            future.result()
    assert [event.sequence for event in read_events(store, "gpt")] == list(range(42))


def test_a_log_of_the_same_life_that_was_overtaken_goes_on_behind() -> None:
    """A number that another process of the life has used is not written over."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    log = EventLog(store, life)
    log.write("saved", step=1)
    write_event(store, life, "saved", step=2)
    log.write("saved", step=3)
    assert [event.details["step"] for event in read_events(store, "gpt")] == [1, 2, 3]


def test_an_event_can_not_lie_about_itself() -> None:
    """The members that every event has are not the caller's to set."""
    store = MemoryStore()
    log = EventLog(store, claim(store, "gpt", identity=IDENTITY))
    with pytest.raises(ValueError, match="life"):
        log.write("saved", life=9)
    with pytest.raises(ValueError, match="called"):
        log.write("../saved")


@given(st.binary(max_size=100))
def test_rubbish_is_left_out_and_told(rubbish: bytes) -> None:
    """Whatever lies in the history, the rest of it is still read."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    write_event(store, life, "restored")
    write_event(store, life, "something-new", detail={"deep": [1]})
    key = layout.history("gpt", 1, sequence=2, event="saved")
    store.put(key, rubbish)
    store.put("gpt/history/readme.txt", b"")
    told: list[tuple[str, Exception]] = []
    found = read_events(store, "gpt", on_rubbish=lambda name, error: told.append((name, error)))
    assert [event.event for event in found] == ["restored", "something-new"]
    assert [name for name, _ in told] == [key]
    assert isinstance(told[0][1], Damaged)
    assert last_event(store, "gpt", 1) == found[1]


def test_an_event_of_another_life_is_rubbish() -> None:
    """A document that says something else than its key is not believed."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    write_event(store, life, "saved")
    body = store.get(layout.history("gpt", 1, sequence=0, event="saved"), at_most=9999)
    store.put(layout.history("gpt", later_life(life).number, sequence=0, event="saved"), body)
    assert [event.life for event in read_events(store, "gpt")] == [1]
