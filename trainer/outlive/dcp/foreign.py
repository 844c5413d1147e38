"""A checkpoint that a run under ``outlive.attach`` has saved, as torch sees one: by its tables of tensors."""

from collections.abc import Sequence

from outlive.dcp.index import Index, Piece, Pieces
from outlive.errors import Damaged
from outlive.objects.interface import ObjectStore
from outlive.store.fetch import check_table, read_blob
from outlive.store.flight import each, workers_for
from outlive.store.manifest import Manifest
from outlive.store.table import TensorEntry, TensorTable
from outlive.train.tensors import DTYPES


def index_of_run(store: ObjectStore, manifest: Manifest) -> Index:
    """Every tensor under the name that ``{"model": model.state_dict()}`` gives it: ``model.layer.weight``."""
    tables = read_tables(store, manifest)
    pieces: dict[str, list[Piece]] = {}
    looks: dict[str, tuple[str, tuple[int, ...]]] = {}
    for rank, table in enumerate(tables):
        for entry in table.tensors:
            if entry.owner is not None:  # its bytes are met in that part
                continue
            name = entry.path.replace("/", ".")
            whole, at = entry.whole or entry.shape, entry.at or (0,) * len(entry.shape)
            if looks.setdefault(name, (entry.dtype, whole)) != (entry.dtype, whole):
                raise Damaged(f"{entry.path} is of another shape or dtype in part {rank}")
            piece = Piece(rank=rank, offset=entry.offset, at=at, shape=entry.shape)
            known = pieces.setdefault(name, [])
            if all(other.at != at for other in known):  # what each rank has for itself: the first one's
                known.append(piece)
    tensors = {}
    for name, (dtype, whole) in looks.items():
        if dtype not in DTYPES:
            raise Damaged(f"{name} is of dtype {dtype}, which this version of torch lacks")
        tensors[name] = Pieces(dtype=DTYPES[dtype], size=whole, pieces=tuple(pieces[name]))
    return Index(tensors=tensors, planner_data=_nested(tables))


def read_tables(store: ObjectStore, manifest: Manifest) -> list[TensorTable]:
    """The tensor table of every part, verified."""
    found: dict[int, TensorTable] = {}

    def read(rank: int) -> None:
        part = manifest.parts[rank]
        raw = bytearray(part.table.bytes)
        read_blob(store, manifest.run, part.table, memoryview(raw))
        found[rank] = check_table(bytes(raw), part, where=f"the tensor table of part {rank}")

    each(range(len(manifest.parts)), read, workers=workers_for(store))
    return [found[rank] for rank in range(len(manifest.parts))]


def _nested(tables: Sequence[TensorTable]) -> dict[str, tuple[str, ...]]:
    """How the names are nested: an object's name, and the tensor's within it."""
    entries: list[TensorEntry] = [entry for table in tables for entry in table.tensors]
    return {entry.path.replace("/", "."): tuple(entry.path.split("/", 1)) for entry in entries}
