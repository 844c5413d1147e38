"""The image of all ranks: which tensors lie in it, and where the pieces of one are."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from outlive.errors import Damaged
from outlive.staging.parts import PartNotes
from outlive.store.table import TensorEntry, TensorTable
from outlive.train.shards import Box
from outlive.train.tensors import DTYPES, Stored, is_dense, window


class Joint:
    """Every rank's part of one image. A table is read when it is needed: a rank's own is enough for most."""

    def __init__(self, image: memoryview, parts: Sequence[PartNotes]) -> None:
        self.parts = parts
        self._image = image
        self._tables: dict[int, dict[str, TensorEntry]] = {}
        self._pieces: dict[str, list[tuple[Box, Tensor]]] | None = None

    def stored(self, rank: int) -> list[Stored]:
        """This rank's tensors, in the order of its table. ``Damaged`` if one can't be what it says."""
        return [self._stored(rank, entry) for entry in self._table(rank).values()]

    def pieces(self, path: str) -> list[tuple[Box, Tensor]]:
        """All pieces of a tensor that are stored."""
        if self._pieces is None:
            self._pieces = {}
            for rank in range(len(self.parts)):
                for entry in self._table(rank).values():
                    if entry.owner is None and entry.whole is not None and entry.at is not None:
                        box = Box(whole=entry.whole, at=entry.at, shape=entry.shape)
                        self._pieces.setdefault(entry.path, []).append((box, self._view(rank, entry)))
        return self._pieces.get(path, [])

    def _stored(self, rank: int, entry: TensorEntry) -> Stored:
        holder, there = rank, entry
        if entry.owner is not None:
            holder, there = entry.owner, self._at_owner(rank, entry)
        if entry.strides is not None and not is_dense(entry.shape, entry.strides):
            raise Damaged(f"{entry.path} has strides that are not those of a dense tensor")
        found = Stored(
            view=self._view(holder, there),
            path=entry.path,
            device=entry.device,
            strides=entry.strides,
            place=(holder, there.offset),
        )
        if entry.whole is None or entry.at is None:
            return found
        box = Box(whole=entry.whole, at=entry.at, shape=entry.shape)
        return replace(found, box=box, pieces=partial(self.pieces, entry.path))

    def _at_owner(self, rank: int, entry: TensorEntry) -> TensorEntry:
        owner = entry.owner
        found = self._table(owner).get(entry.path) if owner is not None and owner < len(self.parts) else None
        same = found is not None and (found.dtype, found.shape, found.whole, found.at) == (
            entry.dtype,
            entry.shape,
            entry.whole,
            entry.at,
        )
        if found is None or found.owner is not None or not same:
            raise Damaged(
                f"{entry.path} of rank {rank} should lie with rank {owner}, which has no such tensor"
            )
        return found

    def _table(self, rank: int) -> dict[str, TensorEntry]:
        if rank not in self._tables:
            table = TensorTable.decode(self.parts[rank].table, where=f"the tensor table of rank {rank}")
            self._tables[rank] = {entry.path: entry for entry in table.tensors}
            if len(self._tables[rank]) < len(table.tensors):
                raise Damaged(f"the tensor table of rank {rank} has a name twice")
        return self._tables[rank]

    def _view(self, rank: int, entry: TensorEntry) -> Tensor:
        part, dtype = self.parts[rank], DTYPES.get(entry.dtype)
        if dtype is None:
            raise Damaged(f"{entry.path} is of dtype {entry.dtype}, which this version of torch lacks")
        if entry.bytes != math.prod(entry.shape) * dtype.itemsize or entry.offset + entry.bytes > part.bytes:
            raise Damaged(f"{entry.path} has another size than its shape says")
        return window(self._image, dtype, shape=entry.shape, offset=part.offset + entry.offset)
