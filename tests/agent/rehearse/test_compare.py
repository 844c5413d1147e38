"""Diaries and checkpoints side by side."""

from pathlib import Path

from fakes.checkpoints import begin, snapshot
from outlive.objects.memory import MemoryStore
from outlive.staging.rehearsal import Entry
from outlive.store.layout import CheckpointId
from outlive_agent.rehearse.causes import NOT_DETERMINISTIC, stored_causes
from outlive_agent.rehearse.compare import count, first_difference
from outlive_agent.rehearse.images import compare
from outlive_agent.rehearse.leg import Leg


def leg(*entries: Entry, first: int = 0) -> Leg:
    return Leg(
        name="resumed",
        life=2,
        resumed=CheckpointId(1, first),
        saved=(),
        code=75,
        seconds=1.0,
        struck_seconds=None,
        entries={entry.step: entry for entry in entries},
        log=Path("/dev/null"),
    )


def entry(step: int, loss: float = 1.0, tensor: str = "#1") -> Entry:
    return Entry(step=step, metrics={"loss": loss.hex()}, names=("net/w", "net/b"), tensors=(tensor, "#b"))


def test_the_first_step_that_differs_is_found() -> None:
    """Of several differences the first counts, with all that differs there and nothing else."""
    here = leg(entry(1), entry(2), entry(3), entry(4))
    there = leg(entry(2), entry(3, tensor="#2"), entry(4, loss=2.0, tensor="#3"), first=1)
    found = first_difference(here, there, until=4)
    assert found is not None
    assert (found.step, found.metrics, found.tensors, found.absent) == (3, (), ("net/w",), False)
    assert count(here, there, before=3).metrics == 1


def test_a_bit_of_a_metric_counts() -> None:
    """Losses that print alike and differ in their last bit are different."""
    there = leg(entry(1, loss=float.fromhex("0x1.0000000000001p+0")))
    found = first_difference(leg(entry(1)), there)
    assert found is not None
    assert found.metrics == ("loss",)


def test_one_that_ends_early_or_late_differs() -> None:
    """Equal steps are not enough: both have to come to the same end."""
    short, long = leg(entry(1)), leg(entry(1), entry(2))
    assert first_difference(long, short, until=1) is None
    for here, there, until in ((long, short, 2), (short, long, 1)):
        found = first_difference(here, there, until=until)
        assert found is not None
        assert (found.step, found.absent) == (2, True)


def test_stored_checkpoints_are_compared_by_their_bytes() -> None:
    """A changed element of a stored tensor is found and counted, and a changed value by its path."""
    store = MemoryStore()
    one = begin(store).commit(snapshot(5, b"\1\2\3", b"\7")).manifest
    two = begin(store).commit(snapshot(6, b"\1\2\3", b"\7")).manifest
    three = begin(store).commit(snapshot(7, b"\1\2\5", b"\7", values=b'{"seen":1}')).manifest
    assert compare(store, "gpt", one.id, two.id).equal
    found = compare(store, "gpt", two.id, three.id)
    assert (found.differing, found.other_values) == (("model/0",), ("seen",))
    detail = found.details[0]
    assert (detail.path, detail.differing, detail.elements, detail.most) == ("model/0", 1, 3, 2)
    assert [cause.name for cause in stored_causes(found, found)] == [NOT_DETERMINISTIC]
