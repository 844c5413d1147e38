"""The removal that goes on beside a training: what it says, and what it never does."""

import io
from contextlib import suppress

import pytest

from fakes.checkpoints import begin, keys, restored, snapshot
from outlive.errors import StoreFull
from outlive.objects.interface import Body
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.retention import Keep
from outlive_agent.journal import Journal
from outlive_agent.pruning import Pruning


class SmallStore(MemoryStore):
    """It holds so many bytes of chunks."""

    room = 3500

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        held = sum(info.size for info in self.list("gpt/chunks/"))
        if "/chunks/" in key and held + memoryview(body).nbytes > self.room:
            raise StoreFull("full", hint="buy another one")
        super().put(key, body, create_only=create_only)


def test_a_full_store_is_made_room_in() -> None:
    """What was let go on the last day does not keep a run from saving for a day, nor the next life of it."""
    store = SmallStore()
    stream = io.StringIO()
    for steps in (range(1, 8), range(8, 15)):
        owner = begin(store)
        pruning = Pruning(store, Keep(last=1), journal=Journal(stream))
        for step in steps:
            taken = snapshot(step, bytes([step]) * 1000)
            with suppress(StoreFull):
                owner.commit(taken)
                continue
            pruning.make_room(owner)
            assert pruning._thread is not None
            pruning._thread.join(10)
            owner.commit(taken)
            found = restored(store)
            assert found is not None
            assert (found[0].step, found[1][:1000]) == (step, bytes([step]) * 1000)
    assert "since the store is full" in stream.getvalue()


def test_what_a_finished_run_leaves_is_told_if_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be paid for, for ever, by somebody who does not know of it."""
    monkeypatch.setattr("outlive_agent.pruning.WORTH_TELLING_BYTES", 2000)
    owner = begin(MemoryStore())
    stream = io.StringIO()
    pruning = Pruning(owner._store, Keep(last=1), journal=Journal(stream))
    for step in (1, 2, 3):
        owner.commit(snapshot(step, bytes([step]) * 1000))
        pruning._pass(owner)
        pruning.finished("gpt")
    (line,) = [line for line in stream.getvalue().splitlines() if "stay in the store" in line]
    assert line.startswith("outlive: 2.")
    assert line.endswith("outlive prune gpt --yes")


def test_who_is_superseded_makes_no_room() -> None:
    """It deletes nothing, full or not."""
    store = MemoryStore()
    older = begin(store)
    begin(store).commit(snapshot(1, b"x"))
    store.put(layout.chunk("gpt", CheckpointId(1, 1), blake3="0" * 64), b"garbage")
    before = keys(store)
    pruning = Pruning(store, Keep(last=1), journal=Journal(io.StringIO()))
    pruning.make_room(older)
    assert pruning._thread is not None
    pruning._thread.join(10)
    assert keys(store) == before


def test_what_a_removal_leaves_alone_is_told_once() -> None:
    """A metric that no checkpoint has would keep nothing, in silence, for the whole run."""
    owner = begin(MemoryStore())
    owner.commit(snapshot(1, b"x", metrics={"loss": 1.0}))
    stream = io.StringIO()
    pruning = Pruning(owner._store, Keep(best="los"), journal=Journal(stream))
    for _ in range(2):
        pruning._next = 0.0
        pruning.after_commit(owner)
        assert pruning._thread is not None
        pruning._thread.join(10)
    (line,) = stream.getvalue().splitlines()
    assert "warning: old checkpoints: no checkpoint has a finite metric 'los'" in line
    assert "they have loss" in line
