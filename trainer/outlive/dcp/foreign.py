"""A checkpoint that a run under ``outlive.attach`` has saved, as torch sees one: by its tables of tensors."""

from outlive.dcp.index import Index, Piece, Pieces
from outlive.errors import Damaged
from outlive.objects.interface import ObjectStore
from outlive.store.manifest import Manifest
from outlive.store.whole import Whole, read_tables, whole_tensors
from outlive.train.tensors import DTYPES


def index_of_run(store: ObjectStore, manifest: Manifest) -> Index:
    """Every tensor under the name that ``{"model": model.state_dict()}`` gives it: ``model.layer.weight``."""
    found = whole_tensors(read_tables(store, manifest), where=f"{manifest.run} {manifest.id}")
    strange = [f"{tensor.path} is of dtype {tensor.dtype}" for tensor in found if tensor.dtype not in DTYPES]
    if strange:
        raise Damaged(f"{strange[0]}, which this version of torch lacks")
    names = {tensor.path: tensor.path.replace("/", ".") for tensor in found}
    return Index(
        tensors={names[tensor.path]: _pieces(tensor) for tensor in found},
        planner_data={name: tuple(path.split("/", 1)) for path, name in names.items()},
    )


def _pieces(tensor: Whole) -> Pieces:
    return Pieces(
        dtype=DTYPES[tensor.dtype],
        size=tensor.shape,
        pieces=tuple(
            Piece(rank=piece.rank, offset=piece.offset, at=piece.box.at, shape=piece.box.shape)
            for piece in tensor.pieces
        ),
    )
