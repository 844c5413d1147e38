"""Pieces of tensors are put together byte by byte, as numpy would do it."""

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from outlive.errors import Damaged
from outlive.store.boxes import Box, copy, overlap, pieces_of, runs


def _numbered(shape: tuple[int, ...], item_bytes: int) -> bytes:
    """Content in which every byte says which element it is of."""
    return b"".join(bytes([i % 251] * item_bytes) for i in range(prod(shape)))


def _element(content: memoryview, box: Box, index: tuple[int, ...], item_bytes: int) -> bytes:
    """The element at this index of the whole tensor, in the memory of one of its boxes."""
    at = 0
    for place, begin, size in zip(index, box.at, box.shape, strict=True):
        at = at * size + place - begin
    return bytes(content[at * item_bytes : (at + 1) * item_bytes])


@some.composite
def _boxes(draw: some.DrawFn) -> tuple[Box, Box]:
    """Two boxes of one tensor of up to four dimensions."""
    dimensions = draw(some.integers(0, 4))
    made = []
    for _ in range(2):
        at = tuple(draw(some.integers(0, 3)) for _ in range(dimensions))
        shape = tuple(draw(some.integers(1, 4)) for _ in range(dimensions))
        made.append(Box(at=at, shape=shape))
    return made[0], made[1]


@given(_boxes(), some.sampled_from([1, 2, 8]), some.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_what_lies_in_both_is_copied(boxes: tuple[Box, Box], item_bytes: int, window: int) -> None:
    """Exactly the shared elements arrive, each at its place, however the source is cut into windows."""
    source, target = boxes
    content = memoryview(_numbered(source.shape, item_bytes))
    place = memoryview(bytearray(b"\xff" * (target.elements * item_bytes)))
    copied = sum(
        copy(content[at : at + window], source, place, target, item_bytes=item_bytes, start=at)
        for at in range(0, len(content), window)
    )
    shared = overlap(source, target)
    assert copied == (shared.elements * item_bytes if shared else 0)
    spans = [range(begin, end) for begin, end in zip(target.at, target.end, strict=True)]
    for index in product(*spans):
        inside = shared is not None and all(
            begin <= i < end for begin, i, end in zip(shared.at, index, shared.end, strict=True)
        )
        wanted = _element(content, source, index, item_bytes) if inside else b"\xff" * item_bytes
        assert _element(place, target, index, item_bytes) == wanted


def test_runs_are_as_long_as_they_can_be() -> None:
    """Rows that are whole on both sides move as one run, and those of a column each by itself."""
    rows = list(runs(Box.whole((8, 16)), Box(at=(2, 0), shape=(4, 16)), item_bytes=4))
    assert [(run.source, run.target, run.bytes) for run in rows] == [(128, 0, 256)]
    columns = list(runs(Box.whole((8, 16)), Box(at=(0, 4), shape=(8, 4)), item_bytes=4))
    assert [(run.source, run.target, run.bytes) for run in columns] == [
        (64 * i + 16, 16 * i, 16) for i in range(8)
    ]


def test_a_window_costs_what_lies_in_it() -> None:
    """Of a tensor of millions of rows only those in the window are looked at."""
    wide = Box.whole((50_000_000, 4))
    found = list(runs(wide, Box(at=(0, 1), shape=(50_000_000, 2)), item_bytes=4, start=1_600, stop=1_632))
    assert [(run.source, run.target, run.bytes) for run in found] == [(1_604, 800, 8), (1_620, 808, 8)]


def test_uneven_shards_make_up_any_box() -> None:
    """A box that crosses shards of another size is made of the parts of each, copies counting once."""
    shards = [Box(at=(at, 0), shape=(size, 4)) for at, size in ((0, 3), (0, 3), (3, 3), (6, 1), (7, 0))]
    found = pieces_of(Box(at=(2, 1), shape=(5, 2)), shards, where="model/w")
    assert found == [
        (0, Box(at=(2, 1), shape=(1, 2))),
        (2, Box(at=(3, 1), shape=(3, 2))),
        (3, Box(at=(6, 1), shape=(1, 2))),
    ]


@pytest.mark.parametrize(
    "shards",
    [
        [Box(at=(0, 0), shape=(3, 4))],
        [Box(at=(0, 0), shape=(3, 4)), Box(at=(2, 0), shape=(2, 4))],
        [Box(at=(0, 0), shape=(4, 2)), Box(at=(0, 0), shape=(4, 3)), Box(at=(0, 3), shape=(1, 4))],
        [],
    ],
)
def test_a_gap_or_an_overlap_is_refused(shards: list[Box]) -> None:
    """Pieces that leave something out, or of which two claim the same element, are damage, not a guess."""
    with pytest.raises(Damaged, match=r"model/w: the pieces that were saved don't make up \[4, 4\]"):
        pieces_of(Box.whole((4, 4)), shards, where="model/w")


def test_two_that_overlap_are_found_out_though_the_sum_is_right() -> None:
    """As many elements as are wanted is not enough: one twice and one not at all is refused, too."""
    shards = [Box(at=(0, 0), shape=(2, 4)), Box(at=(1, 0), shape=(2, 4))]
    with pytest.raises(Damaged):
        pieces_of(Box.whole((4, 4)), shards, where="model/w")


def test_a_number_and_nothing_at_all_are_boxes_too() -> None:
    """A tensor without dimensions has one element; one with a dimension of 0 is complete without pieces."""
    scalar = Box.whole(())
    assert pieces_of(scalar, [scalar, scalar], where="s") == [(0, scalar)]
    place = memoryview(bytearray(4))
    assert copy(memoryview(b"abcd"), scalar, place, scalar, item_bytes=4) == 4
    assert bytes(place) == b"abcd"
    assert pieces_of(Box.whole((0, 4)), [Box.whole((0, 4))], where="e") == []
