"""The tensors of a checkpoint as they are without ranks: whose part holds which piece, and reading one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from outlive.errors import Damaged
from outlive.objects.interface import ObjectStore
from outlive.store.boxes import Box, copy, pieces_of
from outlive.store.fetch import check_table, read_blob
from outlive.store.flight import each, workers_for
from outlive.store.manifest import Blob, Chunk, Manifest
from outlive.store.table import TensorTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one part holds of a tensor."""

    rank: int
    offset: int
    bytes: int
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """One tensor, of all ranks together. Copies of a piece are left out."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    pieces: tuple[Piece, ...]

    @property
    def item_bytes(self) -> int:
        """Bytes of an element; 0 of a tensor that has none."""
        piece = next((piece for piece in self.pieces if piece.box.elements), None)
        return 0 if piece is None else piece.bytes // piece.box.elements

    @property
    def bytes(self) -> int:
        if len(self.pieces) == 1 and self.pieces[0].box.shape == self.shape:
            return self.pieces[0].bytes
        return prod(self.shape) * self.item_bytes


def whole_tensors(tables: Sequence[TensorTable], *, where: str) -> list[Whole]:
    """Every tensor by its path, in the order in which the ranks name them.

    What several ranks hold without a word about sharing it is each one's own: here the first one's counts.
    ``Damaged`` if the ranks disagree about a tensor, or an owner has no bytes of what it is said to own.
    """
    found: dict[str, Whole] = {}
    owed: list[tuple[str, Box, int]] = []
    for rank, table in enumerate(tables):
        for entry in table.tensors:
            box = Box(at=entry.at or (0,) * len(entry.shape), shape=entry.shape)
            shape = entry.whole or entry.shape
            known = found.get(entry.path)
            if known is not None and known.pieces and entry.whole is None and entry.owner is None:
                continue
            if known is not None and (known.dtype, known.shape) != (entry.dtype, shape):
                raise Damaged(f"{where}: {entry.path} is of another dtype or shape in part {rank}")
            pieces = known.pieces if known else ()
            if entry.owner is not None:
                owed.append((entry.path, box, entry.owner))
            elif all(piece.box != box for piece in pieces):
                pieces += (Piece(rank=rank, offset=entry.offset, bytes=entry.bytes, box=box),)
            found[entry.path] = Whole(
                path=entry.path, dtype=entry.dtype, shape=shape, device=entry.device, pieces=pieces
            )
    for path, box, owner in owed:
        if not any(piece.box == box for piece in found[path].pieces):
            raise Damaged(f"{where}: part {owner} has no bytes of {path}, which it is said to hold")
    return list(found.values())


def read_tables(store: ObjectStore, manifest: Manifest) -> list[TensorTable]:
    """The tensor table of every part, verified."""
    found: dict[int, TensorTable] = {}

    def read(rank: int) -> None:
        part = manifest.parts[rank]
        where = f"the tensor table of part {rank} of {manifest.run} {manifest.id}"
        found[rank] = check_table(bytes(_read(store, manifest, part.table)), part, where=where)

    each(range(len(manifest.parts)), read, workers=workers_for(store))
    return [found[rank] for rank in range(len(manifest.parts))]


class WholeReader:
    """Reads tensors one after the other. The last chunk stays, since small tensors share one."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._held: tuple[Chunk, memoryview] | None = None

    def content(self, tensor: Whole) -> Iterator[memoryview]:
        """The tensor's bytes in order, verified. Of one that is in several pieces all is held at once."""
        where = f"{tensor.path} of {self._manifest.run} {self._manifest.id}"
        wanted = Box.whole(tensor.shape)
        chosen = pieces_of(wanted, [piece.box for piece in tensor.pieces], where=where)
        pieces = [tensor.pieces[number] for number, _ in chosen]
        if len(pieces) == 1:
            for _, part in self._stretches(pieces[0]):
                yield part
            return
        place = memoryview(bytearray(tensor.bytes))
        for piece in pieces:
            for start, part in self._stretches(piece):
                copy(part, piece.box, place, wanted, item_bytes=tensor.item_bytes, start=start)
        yield place

    def _stretches(self, piece: Piece) -> Iterator[tuple[int, memoryview]]:
        """The piece's bytes, chunk by chunk, each with its place in the piece."""
        end = piece.offset + piece.bytes
        for chunk in _reached(self._manifest.parts[piece.rank].chunks, piece.offset, end):
            start, stop = max(piece.offset, chunk.offset), min(end, chunk.offset + chunk.bytes)
            yield start - piece.offset, self._content(chunk)[start - chunk.offset : stop - chunk.offset]

    def _content(self, chunk: Chunk) -> memoryview:
        if self._held is None or self._held[0] != chunk:
            self._held = None
            self._held = chunk, memoryview(_read(self._store, self._manifest, chunk.blob))
        return self._held[1]


def _reached(chunks: Iterable[Chunk], start: int, end: int) -> Iterator[Chunk]:
    return (chunk for chunk in chunks if chunk.offset < end and start < chunk.offset + chunk.bytes)


def _read(store: ObjectStore, manifest: Manifest, blob: Blob) -> bytearray:
    content = bytearray(blob.bytes)
    read_blob(store, manifest.run, blob, memoryview(content))
    return content
