"""Tensors that several ranks have saved in pieces are read as if there had been no ranks."""

import random
import secrets
from math import prod

import pytest

from fakes.checkpoints import begin
from outlive.errors import Damaged
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.boxes import Box, copy
from outlive.store.chunks import cut, digest
from outlive.store.lives import Life
from outlive.store.manifest import Blob, Chunk, Manifest, Part
from outlive.store.table import TensorEntry, TensorTable
from outlive.store.whole import WholeReader, read_tables, whole_tensors

ITEM = 4


def _content(shape: tuple[int, ...], seed: str) -> bytes:
    return random.Random(seed).randbytes(prod(shape) * ITEM)  # noqa: S311 - content under test


def _entry(
    path: str, box: Box, whole: tuple[int, ...] | None, *, at: int, owner: int | None = None
) -> TensorEntry:
    return TensorEntry(
        path=path,
        dtype="float32",
        shape=box.shape,
        offset=at,
        bytes=0 if owner is not None else box.elements * ITEM,
        device="cpu",
        whole=whole,
        at=None if whole is None else box.at,
        owner=owner,
    )


class Saved:
    """A checkpoint of several parts, put into a store by hand."""

    def __init__(self, world: int) -> None:
        self.store = MemoryStore()
        self.life: Life = begin(self.store).life
        self._entries: list[list[TensorEntry]] = [[] for _ in range(world)]
        self._images = [bytearray() for _ in range(world)]

    def piece(self, rank: int, path: str, whole: tuple[int, ...], box: Box | None = None) -> None:
        """Let a rank hold a piece of a tensor, or all of it."""
        content = _content(whole, path)
        mine = box or Box.whole(whole)
        place = memoryview(bytearray(mine.elements * ITEM))
        copy(memoryview(content), Box.whole(whole), place, mine, item_bytes=ITEM)
        image = self._images[rank]
        self._entries[rank].append(_entry(path, mine, whole if box else None, at=len(image)))
        image += place
        image += bytes(-len(image) % 64)

    def copy_of(self, rank: int, path: str, whole: tuple[int, ...], *, owner: int) -> None:
        """Let a rank say that another one has it."""
        at = len(self._images[rank])
        self._entries[rank].append(_entry(path, Box.whole(whole), None, at=at, owner=owner))

    def manifest(self) -> Manifest:
        parts = [self._part(rank) for rank in range(len(self._images))]
        plain = begin(self.store)  # any manifest's other members do
        return Manifest(
            run="gpt",
            life=plain.life.number,
            step=1,
            epoch=None,
            reason="hand",
            created_at=self.store.now(),
            nonce=secrets.token_hex(16),
            parent=None,
            parts=tuple(parts),
        )

    def _part(self, rank: int) -> Part:
        image = bytes(self._images[rank])
        table = TensorTable(bytes=len(image), tensors=tuple(self._entries[rank]))
        chunks = [
            Chunk(offset=at, bytes=size, blake3=blob.blake3, home=blob.home)
            for at, size in cut(table, chunk_bytes=128)
            for blob in [self._put(image[at : at + size])]
        ]
        return Part(
            rank=rank,
            world=len(self._images),
            bytes=len(image),
            table=self._put(table.encode()),
            values=self._put(b"{}"),
            chunks=tuple(chunks),
        )

    def _put(self, content: bytes) -> Blob:
        home = layout.CheckpointId(self.life.number, 1)
        self.store.put(layout.chunk("gpt", home, blake3=digest(content)), content)
        return Blob(blake3=digest(content), bytes=len(content), home=home)


def _read(saved: Saved) -> dict[str, tuple[tuple[int, ...], bytes]]:
    manifest = saved.manifest()
    reader = WholeReader(saved.store, manifest)
    found = whole_tensors(read_tables(saved.store, manifest), where="gpt")
    return {tensor.path: (tensor.shape, b"".join(reader.content(tensor))) for tensor in found}


def test_shards_and_copies_become_whole_tensors() -> None:
    """Uneven rows, columns, a grid, an empty shard, one in all parts, one with an owner: all are whole."""
    saved = Saved(4)
    for rank, (at, size) in enumerate([(0, 3), (3, 3), (6, 1), (7, 0)]):
        saved.piece(rank, "model/rows", (7, 33), Box(at=(at, 0), shape=(size, 33)))
        saved.piece(rank, "model/columns", (5, 8), Box(at=(0, 2 * rank), shape=(5, 2)))
        saved.piece(rank, "model/grid", (6, 6), Box(at=(3 * (rank // 2), 3 * (rank % 2)), shape=(3, 3)))
        saved.piece(rank, "each/own", (2, 2))
    saved.piece(2, "model/bias", (50,))
    for rank in (0, 1, 3):
        saved.copy_of(rank, "model/bias", (50,), owner=2)
    shapes = {
        "model/rows": (7, 33),
        "model/columns": (5, 8),
        "model/grid": (6, 6),
        "each/own": (2, 2),
        "model/bias": (50,),
    }
    assert _read(saved) == {path: (shape, _content(shape, path)) for path, shape in shapes.items()}


def test_of_what_each_rank_has_for_itself_the_first_counts() -> None:
    """Two ranks may keep tensors of one name and different shapes, each its own: that is no damage."""
    saved = Saved(2)
    saved.piece(0, "state/seen", (4,))
    saved.piece(1, "state/seen", (5,))
    assert _read(saved) == {"state/seen": ((4,), _content((4,), "state/seen"))}


def test_a_piece_that_nobody_has_is_damage() -> None:
    """A tensor of which a row is in no part is refused, not filled with zeros."""
    saved = Saved(2)
    saved.piece(0, "model/w", (4, 4), Box(at=(0, 0), shape=(2, 4)))
    saved.piece(1, "model/w", (4, 4), Box(at=(3, 0), shape=(1, 4)))
    with pytest.raises(Damaged, match=r"model/w of gpt .*don't make up"):
        _read(saved)


def test_an_owner_without_bytes_is_damage() -> None:
    """A rank that is said to hold what it does not hold makes the checkpoint damaged."""
    saved = Saved(2)
    saved.piece(0, "model/w", (4,))
    saved.copy_of(0, "model/b", (4,), owner=1)
    with pytest.raises(Damaged, match="part 1 has no bytes of model/b"):
        _read(saved)


def test_ranks_that_disagree_are_damage() -> None:
    """Shards of one path but of two shapes are two tensors, and nobody can say which is meant."""
    saved = Saved(2)
    saved.piece(0, "model/w", (4,), Box(at=(0,), shape=(2,)))
    saved.piece(1, "model/w", (5,), Box(at=(2,), shape=(3,)))
    with pytest.raises(Damaged, match="model/w is of another dtype or shape in part 1"):
        _read(saved)
