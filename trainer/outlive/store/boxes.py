"""Pieces of tensors: which of them make up a wanted one, and which bytes go where. Without numpy or torch.

A box is a piece of a row-major tensor: where it begins in it, and its shape. Every shard of a tensor is one,
and so is what another rank wants of it. Bytes move in runs, each as long as both sides allow.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from outlive.errors import Damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A piece of a tensor. That of a tensor without dimensions has none either, and one element."""

    at: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.at) != len(self.shape):
            raise ValueError(f"a box at {self.at} can't have the shape {self.shape}")

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Box":
        """The tensor itself."""
        return cls(at=(0,) * len(shape), shape=tuple(shape))

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def end(self) -> tuple[int, ...]:
        return tuple(map(operator.add, self.at, self.shape))

    def within(self, outer: "Box") -> "Box":
        """The same box, counted from where ``outer`` begins."""
        return Box(at=tuple(map(operator.sub, self.at, outer.at)), shape=self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Bytes that lie together on both sides: so many, from here to there."""

    source: int
    target: int
    bytes: int


def overlap(one: Box, other: Box) -> Box | None:
    """What lies in both; None if nothing does. Both must be of tensors of as many dimensions."""
    if len(one.shape) != len(other.shape):
        raise ValueError(f"boxes of {len(one.shape)} and {len(other.shape)} dimensions don't compare")
    at = tuple(map(max, one.at, other.at))
    end = tuple(map(min, one.end, other.end))
    shape = tuple(map(operator.sub, end, at))
    return Box(at=at, shape=shape) if all(size > 0 for size in shape) else None


def pieces_of(wanted: Box, pieces: Sequence[Box], *, where: str) -> list[tuple[int, Box]]:
    """Which pieces, by number, hold which boxes of ``wanted``: together all of it, nothing twice.

    Equal pieces are copies of one another: the first serves. ``Damaged`` if a part of ``wanted`` is in none,
    or if pieces overlap otherwise, so that nobody could say which of the two counts.
    """
    found: list[tuple[int, Box]] = []
    seen: set[Box] = set()
    for number, piece in enumerate(pieces):
        shared = overlap(piece, wanted)
        if shared is not None and piece not in seen:
            seen.add(piece)
            found.append((number, shared))
    if sum(shared.elements for _, shared in found) != wanted.elements or _collide([box for _, box in found]):
        raise Damaged(f"{where}: the pieces that were saved don't make up {_text(wanted)}")
    return found


def runs(
    source: Box, target: Box, *, item_bytes: int, start: int = 0, stop: int | None = None
) -> Iterator[Run]:
    """Which bytes of ``source``'s memory go where in ``target``'s, for all that lies in both.

    Ascending on both sides. Only what lies in the bytes from ``start`` up to ``stop`` of the source, for
    whoever has no more of it at hand; offsets count from the source's own beginning all the same.
    """
    shared = overlap(source, target)
    if shared is None:
        return
    last = source.elements * item_bytes if stop is None else stop
    inner = _together(shared, source, target)
    length = prod(shared.shape[inner:]) * item_bytes
    source_steps = _steps(source.shape, item_bytes)
    target_steps = _steps(target.shape, item_bytes)
    first = shared.within(source).at, shared.within(target).at
    base = _at(first[0], source_steps), _at(first[1], target_steps)
    outer = shared.shape[:inner]
    for index in _indices(outer, source_steps, low=start - base[0] - length + 1, high=last - base[0]):
        begin = base[0] + _at(index, source_steps)
        cut = max(start - begin, 0)
        size = min(begin + length, last) - begin - cut
        if size > 0:
            yield Run(source=begin + cut, target=base[1] + _at(index, target_steps) + cut, bytes=size)


def copy(
    content: memoryview, source: Box, place: memoryview, target: Box, *, item_bytes: int, start: int = 0
) -> int:
    """Copy what lies in both from ``content``, which begins ``start`` bytes into the source's memory.

    Returns the bytes copied. Both memories are bytes, the ``place`` is all of the target's.
    """
    copied = 0
    for run in runs(source, target, item_bytes=item_bytes, start=start, stop=start + content.nbytes):
        place[run.target : run.target + run.bytes] = content[
            run.source - start : run.source - start + run.bytes
        ]
        copied += run.bytes
    return copied


def _collide(boxes: Sequence[Box]) -> bool:
    """Whether two of them overlap: each is compared with those that are not over yet along the first axis."""
    if not boxes or not boxes[0].shape:
        return len(boxes) > 1
    under_way: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.at):
        under_way = [other for other in under_way if other.end[0] > box.at[0]]
        if any(overlap(box, other) for other in under_way):
            return True
        under_way.append(box)
    return False


def _together(shared: Box, source: Box, target: Box) -> int:
    """The first dimension from which on the shared box is one stretch of bytes on both sides."""
    inner = len(shared.shape)
    while inner and all(
        shared.shape[inner:] == whole.shape[inner:] for whole in (source, target)
    ):  # whatever lies further in is whole, so this dimension's elements lie side by side
        inner -= 1
    return inner


def _steps(shape: Sequence[int], item_bytes: int) -> list[int]:
    """How far apart in memory neighbours along each dimension are."""
    steps: list[int] = []
    step = item_bytes
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


def _at(index: Sequence[int], steps: Sequence[int]) -> int:
    return sum(map(operator.mul, index, steps))


def _indices(shape: Sequence[int], steps: Sequence[int], *, low: int, high: int) -> Iterator[tuple[int, ...]]:
    """Every index into ``shape``, in order, whose place is from ``low`` up to ``high``, and few others.

    Whole rows outside are passed over without looking into them.
    """
    if not shape:
        if low <= 0 < high:
            yield ()
        return
    step = steps[0]
    reach = sum((size - 1) * width for size, width in zip(shape[1:], steps[1:], strict=False))
    first = max(0, -(-(low - reach) // step))
    after = min(shape[0], max(0, -(-high // step)))
    for index in range(first, after):
        for rest in _indices(shape[1:], steps[1:], low=low - index * step, high=high - index * step):
            yield (index, *rest)


def _text(box: Box) -> str:
    return f"{list(box.shape)} at {list(box.at)}" if any(box.at) else str(list(box.shape))
