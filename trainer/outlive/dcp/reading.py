"""Reads what one rank wants of a checkpoint: whole chunks, each verified before a byte of it is used."""

import threading
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

from outlive.dcp.candidates import Candidate
from outlive.dcp.index import Piece
from outlive.errors import Damaged, NotFound, StateError
from outlive.objects.interface import ObjectStore
from outlive.store.boxes import Box, copy, runs
from outlive.store.fetch import read_blob
from outlive.store.flight import each, workers_for
from outlive.store.manifest import Chunk
from outlive.train.tensors import bits


@dataclass(slots=True, kw_only=True, eq=False)
class Wanted:
    """A box of one piece, on its way to where the planner wants it."""

    item: ReadItem
    piece: Piece
    dtype: torch.dtype
    target: Tensor
    place: memoryview
    direct: bool
    """Whether ``place`` is the target's own memory."""
    left: int = field(default=0)
    """Chunks that are still to come."""

    @property
    def source(self) -> Box:
        return Box.whole(self.piece.shape)

    @property
    def box(self) -> Box:
        return Box(at=tuple(self.item.storage_offsets), shape=tuple(self.item.lengths))

    def needs(self, chunk: Chunk) -> bool:
        """Whether any byte of it is wanted here."""
        start, stop = self._within(chunk)
        found = runs(self.source, self.box, item_bytes=self.dtype.itemsize, start=start, stop=stop)
        return next(found, None) is not None

    def take(self, chunk: Chunk, content: memoryview) -> None:
        """Copy what is wanted of a chunk."""
        start, stop = self._within(chunk)
        skip = self.piece.offset + start - chunk.offset
        part = content[skip : skip + stop - start]
        copy(part, self.source, self.place, self.box, item_bytes=self.dtype.itemsize, start=start)

    def _within(self, chunk: Chunk) -> tuple[int, int]:
        """Which bytes of the piece lie in the chunk."""
        end = prod(self.piece.shape) * self.dtype.itemsize
        start = max(chunk.offset - self.piece.offset, 0)
        return start, min(max(chunk.offset + chunk.bytes - self.piece.offset, start), end)


class Reading:
    """All that one plan wants, read with many requests at once."""

    def __init__(self, store: ObjectStore, candidate: Candidate, planner: LoadPlanner) -> None:
        self._store = store
        self._candidate = candidate
        self._planner = planner
        self._guard = threading.Lock()
        self.bytes = 0
        """What was read from the store."""

    def read(self, items: Iterable[ReadItem]) -> None:
        """Fill every target. ``Damaged`` if a chunk is not what the manifest says; some are filled then."""
        wanted = [self._wanted(item) for item in items]
        jobs: dict[tuple[int, int], list[Wanted]] = {}
        for one in wanted:
            for number in self._chunks(one):
                jobs.setdefault((one.piece.rank, number), []).append(one)
                one.left += 1
        for one in wanted:
            if not one.left:
                self._arrived(one)
        order = sorted(jobs)

        def fetch(job: tuple[int, int]) -> None:
            rank, number = job
            chunk = self._candidate.manifest.parts[rank].chunks[number]
            content = memoryview(bytearray(chunk.bytes))
            self._verified(chunk, content)
            for one in jobs.pop(job):
                one.take(chunk, content)
                with self._guard:
                    one.left -= 1
                    if not one.left:
                        self._arrived(one)

        each(order, fetch, workers=workers_for(self._store))

    def _wanted(self, item: ReadItem) -> Wanted:
        index = self._candidate.index
        piece = index.piece(item.storage_index)
        dtype = index.tensors[item.storage_index.fqn].dtype
        target = self._planner.resolve_tensor(item).detach()
        if tuple(target.shape) != tuple(item.lengths):
            raise StateError(
                f"{item.dest_index.fqn}: {list(item.lengths)} is to go into {list(target.shape)}"
            )
        direct = target.dtype == dtype and target.device.type == "cpu" and target.is_contiguous()
        direct = direct and not (target.is_conj() or target.is_neg()) and target.numel() > 0
        size = prod(item.lengths) * dtype.itemsize
        place = _memory(target) if direct else memoryview(bytearray(size))
        return Wanted(item=item, piece=piece, dtype=dtype, target=target, place=place, direct=direct)

    def _chunks(self, one: Wanted) -> list[int]:
        """The numbers of the chunks that it needs: whatever of them it needs, they come whole."""
        chunks = self._candidate.manifest.parts[one.piece.rank].chunks
        end = one.piece.offset + prod(one.piece.shape) * one.dtype.itemsize
        first = bisect_right(chunks, one.piece.offset, key=lambda chunk: chunk.offset) - 1
        found = []
        for number in range(max(first, 0), len(chunks)):
            if chunks[number].offset >= end:
                break
            if one.needs(chunks[number]):
                found.append(number)
        return found

    def _verified(self, chunk: Chunk, content: memoryview) -> None:
        """Read it, and once more if it is not what it should be: bytes can also be hurt on their way."""
        try:
            read_blob(self._store, self._candidate.manifest.run, chunk.blob, content)
        except Damaged as error:
            if isinstance(error.__cause__, NotFound):
                raise
            read_blob(self._store, self._candidate.manifest.run, chunk.blob, content)
        with self._guard:
            self.bytes += chunk.bytes

    def _arrived(self, one: Wanted) -> None:
        """All of it is there. (With the guard held, or before anything is under way.)"""
        if not one.direct and one.target.numel():
            flat = torch.frombuffer(one.place, dtype=torch.uint8).view(one.dtype)
            one.target.copy_(flat.view(tuple(one.item.lengths)))
        one.place = memoryview(b"")
        self._planner.commit_tensor(one.item, one.target)


def _memory(tensor: Tensor) -> memoryview:
    return bits(tensor).reshape(-1).view(torch.uint8).numpy().data
