"""Where each tensor of a snapshot lies in its image (docs/FORMAT.md, "Data")."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from outlive.store.table import TensorEntry, TensorTable
from outlive.train.parts import Known, look, uncollected
from outlive.train.tensors import Named, bits, place, size_bytes, window

ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """The image's plan. It stays the same object as long as the tensors keep their looks."""

    signature: tuple[Any, ...]
    size: int
    order: tuple[int, ...]
    """``order[i]`` is the tensor that the table has as its i-th."""
    copied: tuple[int, ...]
    """Positions in the table whose bytes must be copied: one of each piece of memory, none that is empty."""
    entries: tuple[TensorEntry, ...]
    table: bytes
    known: Known = field(default_factory=Known)

    @property
    def sources(self) -> list[int]:
        """For each of `copied` the number of its tensor."""
        return [self.order[i] for i in self.copied]

    def windows(self, image: memoryview) -> list[Tensor]:
        """The image's memory behind `copied`, as integers."""
        with uncollected():
            return [self._window(image, self.entries[i]) for i in self.copied]

    def _window(self, image: memoryview, entry: TensorEntry) -> Tensor:
        return bits(window(image, getattr(torch, entry.dtype), shape=entry.shape, offset=entry.offset))

    def clear_gaps(self, image: memoryview) -> None:
        """Zeros between the tensors, so that equal states make equal images."""
        end = 0
        for i in self.copied:
            entry = self.entries[i]
            if entry.offset > end:
                image[end : entry.offset] = bytes(entry.offset - end)
            end = entry.offset + entry.bytes
        if self.size > end:
            image[end : self.size] = bytes(self.size - end)


def lay_out(tensors: Sequence[Named], last: Layout | None = None) -> Layout:
    """A layout for these tensors; the last one again if nothing about them has changed."""
    first: dict[object, int] = {}
    owner = [first.setdefault(place(named.tensor) or i, i) for i, named in enumerate(tensors)]
    looks = [look(named) for named in tensors]
    signature = (tuple(owner), tuple(looks))
    if last is not None and last.signature == signature:
        return last
    group = [named.group for named in tensors]
    for i, original in enumerate(owner):
        group[original] = max(group[original], group[i])  # what changes under one name changes under all
    order = sorted(range(len(tensors)), key=lambda i: (group[owner[i]], owner[i], i))
    entries: list[TensorEntry] = []
    copied: list[int] = []
    offset_of: dict[int, int] = {}
    end = 0
    for i in order:
        size = 0 if tensors[i].owner is not None else size_bytes(tensors[i].tensor)
        if owner[i] == i:
            offset_of[i] = end
            end += -(-size // ALIGNMENT) * ALIGNMENT
            if size:
                copied.append(len(entries))
        path, dtype, shape, strides, device, _, box, stored_by = looks[i]
        entries.append(
            TensorEntry(
                path=path,
                dtype=dtype,
                shape=shape,
                offset=offset_of[owner[i]],
                bytes=size,
                device=device,
                strides=strides,
                group=group[owner[i]],
                whole=None if box is None else box.whole,
                at=None if box is None else box.at,
                owner=stored_by,
            )
        )
    return Layout(
        signature=signature,
        size=end,
        order=tuple(order),
        copied=tuple(copied),
        entries=tuple(entries),
        table=TensorTable(bytes=end, tensors=tuple(entries)).encode(),
    )
