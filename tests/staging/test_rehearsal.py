"""Orders and the diary of a rehearsal."""

from pathlib import Path

import pytest

from outlive.errors import ConfigError
from outlive.staging.rehearsal import Entry, Orders, leaves, read_diary


def test_orders_come_through_the_environment() -> None:
    """What is written into the variable is what is read from it."""
    orders = Orders(diary="/tmp/diary", save_at=3, stop_after_seconds=1.5)  # noqa: S108 - never opened
    assert Orders.decode(orders.encode()) == orders


@pytest.mark.parametrize("text", ["", "{}", "1", "[]", '{"diary":'])
def test_other_orders_are_refused(text: str) -> None:
    """A variable that somebody else has set is refused before anything is trained."""
    with pytest.raises(ConfigError, match="OUTLIVE_REHEARSAL"):
        Orders.decode(text)


def test_diary_survives_its_writer(tmp_path: Path) -> None:
    """Of a diary whose writer was killed every whole line counts, and names are told when they change."""
    first = Entry(step=1, names=("a", "b"), tensors=("#1", "#2"), metrics={"loss": "0x1p+0"})
    second = Entry(step=2, names=None, tensors=("#3", "#4"))
    diary = tmp_path / "diary"
    diary.write_text(f"{first.encode()}\n{second.encode()}\n{second.encode()[:20]}")
    one, two = read_diary(diary)
    assert one == first
    assert (two.step, two.names, two.tensors) == (2, ("a", "b"), ("#3", "#4"))
    assert read_diary(tmp_path / "none") == []


def test_leaves_name_every_value() -> None:
    """Every value has a path, a long one a digest that changes with it, and tensors have none."""
    document = {"state": {"best": 0.5, "seen": [1, 2]}, "net": {"w": {"$tensor": 0}}, "rng": list(range(100))}
    found = leaves(document)
    assert found["state/best"] == "0.5"
    assert found["state/seen"] == "[1,2]"
    assert list(found) == ["state/best", "state/seen", "rng"]
    document["rng"] = [*range(99), 0]
    assert leaves(document)["rng"] != found["rng"]
