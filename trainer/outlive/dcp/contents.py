"""The bytes of one rank's tensors, a chunk at a time; what lies in memory as it is stored is not copied."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem, WriteItemType

from outlive.errors import StateError
from outlive.store.chunks import cut
from outlive.store.table import ALIGNMENT, TensorEntry, TensorTable
from outlive.train.tensors import DTYPES, bits, dtype_name, obstacle

_HINT: Final = "leave it out of the state, or keep what it is made of"


def table_of(items: Sequence[WriteItem]) -> TensorTable:
    """Where each of these lies in the image of this rank. The same items give the same table each time."""
    entries: list[TensorEntry] = []
    problems: list[str] = []
    end = 0
    for item in items:
        data = item.tensor_data
        if data is None or dtype_name(data.properties.dtype) not in DTYPES:
            what = "nothing is said of its shape" if data is None else f"dtype {data.properties.dtype}"
            problems.append(f"{item.index.fqn}: a tensor that can't be kept, {what}")
            continue
        shape = tuple(data.chunk.sizes)
        piece = item.type is WriteItemType.SHARD
        size = prod(shape) * data.properties.dtype.itemsize
        entries.append(
            TensorEntry(
                path=item.index.fqn,
                dtype=dtype_name(data.properties.dtype),
                shape=shape,
                offset=end,
                bytes=size,
                device="cpu",
                whole=tuple(data.size) if piece else None,
                at=tuple(data.chunk.offsets) if piece else None,
            )
        )
        end += -(-size // ALIGNMENT) * ALIGNMENT
    if problems:
        raise StateError("\n".join(problems[:20]), hint=_HINT)
    return TensorTable(bytes=end, tensors=tuple(entries))


class Contents:
    """The chunks of one image, each put together when it is asked for. From several threads."""

    def __init__(self, table: TensorTable, items: Sequence[WriteItem], planner: SavePlanner) -> None:
        self.pieces: Final = cut(table)
        self._held = [(entry, item) for entry, item in zip(table.tensors, items, strict=True) if entry.bytes]
        self._offsets = [entry.offset for entry, _ in self._held]
        self._planner = planner
        self._guard = threading.Lock()
        self._tensors: dict[int, Tensor] = {}
        self._left = [0] * len(self._held)
        """For each tensor, in how many chunks it still is: then it is let go."""
        for piece in self.pieces:
            for number in self._inside(*piece):
                self._left[number] += 1

    def chunk(self, number: int) -> memoryview:
        """The bytes of one chunk. To be asked for once."""
        offset, size = self.pieces[number]
        inside = self._inside(offset, size)
        tensors = [self._tensor(i) for i in inside]
        try:
            first = self._held[inside[0]][0]
            if len(inside) == 1 and first.offset <= offset and offset + size <= first.offset + first.bytes:
                return _bytes(tensors[0], offset - first.offset, size)
            place = memoryview(bytearray(size))
            for i, tensor in zip(inside, tensors, strict=True):
                entry = self._held[i][0]
                start, stop = max(entry.offset, offset), min(entry.offset + entry.bytes, offset + size)
                place[start - offset : stop - offset] = _bytes(tensor, start - entry.offset, stop - start)
            return place
        finally:
            self._let_go(inside)

    def _inside(self, offset: int, size: int) -> range:
        """The tensors that have bytes in this stretch."""
        first = max(bisect_right(self._offsets, offset) - 1, 0)
        if first < len(self._held) and self._held[first][0].offset + self._held[first][0].bytes <= offset:
            first += 1
        return range(first, bisect_right(self._offsets, offset + size - 1))

    def _tensor(self, number: int) -> Tensor:
        with self._guard:
            if number not in self._tensors:
                entry, item = self._held[number]
                self._tensors[number] = _row_major(self._planner.resolve_data(item), entry)
            return self._tensors[number]

    def _let_go(self, numbers: Sequence[int]) -> None:
        with self._guard:
            for number in numbers:
                self._left[number] -= 1
                if not self._left[number]:
                    self._tensors.pop(number, None)


def _row_major(given: object, entry: TensorEntry) -> Tensor:
    """The tensor's bits, as bytes in the order in which they are stored."""
    if not isinstance(given, Tensor):
        raise StateError(f"{entry.path}: the planner gave a {type(given).__name__} instead of a tensor")
    tensor = given.detach()
    why = obstacle(tensor)
    if why is None and (tuple(tensor.shape), dtype_name(tensor.dtype)) != (entry.shape, entry.dtype):
        here, planned = (
            f"{dtype_name(tensor.dtype)} {list(tensor.shape)}",
            f"{entry.dtype} {list(entry.shape)}",
        )
        why = f"{here}, where the plan says {planned}"
    if why is not None:
        raise StateError(f"{entry.path}: {why}", hint=_HINT)
    return bits(tensor).contiguous().reshape(-1).view(torch.uint8)


def _bytes(tensor: Tensor, start: int, size: int) -> memoryview:
    """A stretch of a tensor of bytes, on the host."""
    return tensor[start : start + size].cpu().numpy().data
