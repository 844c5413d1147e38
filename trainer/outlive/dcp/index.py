"""What torch knows of a checkpoint, as plain values: which tensor is where, and how the state was nested.

It stands in the values of the first part, under ``dcp``. Nothing in it names code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from outlive.errors import Damaged, StateError
from outlive.store.document import Fields, Json
from outlive.store.manifest import Manifest
from outlive.train.tensors import DTYPES, dtype_name
from outlive.train.values import Encoder
from outlive.train.values_read import decode

_MOST = 2**24
"""Pieces of a checkpoint."""
_DIMENSIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One piece of a tensor: in whose part, where in its image, and what of the tensor it is."""

    rank: int
    offset: int
    at: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """One tensor."""

    dtype: torch.dtype
    size: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All of a checkpoint. ``items``: in whose part each value that is no tensor is, by name."""

    tensors: Mapping[str, Pieces]
    items: Mapping[str, int] = field(default_factory=dict)
    planner_data: Any = None

    def encode(self) -> dict[str, Json]:
        """As it stands in the values."""
        encoder = Encoder()
        planner = encoder.encode(self.planner_data, at="the planner's data")
        if encoder.problems or encoder.tensors:
            raise StateError(
                "\n".join(encoder.problems) or "the planner's data holds tensors",
                hint="use DefaultSavePlanner: what another planner keeps must be plain values",
            )
        return {
            "tensors": {
                name: {
                    "dtype": dtype_name(tensor.dtype),
                    "size": list(tensor.size),
                    "pieces": [[p.rank, p.offset, list(p.at), list(p.shape)] for p in tensor.pieces],
                }
                for name, tensor in self.tensors.items()
            },
            "items": dict(self.items),
            "planner": planner,
        }

    @classmethod
    def decode(cls, document: object, manifest: Manifest, *, where: str) -> "Index":
        """The reverse. ``Damaged`` if a piece lies outside its part or its tensor."""
        fields = Fields(document, where=where)
        items = fields.member("items")
        return cls(
            tensors={
                name: _pieces(Fields(tensor, where=f"{where}: {name}"), manifest)
                for name, tensor in fields.member("tensors").members().items()
            },
            items={name: items.integer(name, high=len(manifest.parts) - 1) for name in items.names()},
            planner_data=decode(fields.members().get("planner"), ()),  # type: ignore[arg-type]
        )

    def metadata(self) -> Metadata:
        """As torch's planners want it."""
        known: dict[str, Any] = {
            name: TensorStorageMetadata(
                properties=TensorProperties(dtype=tensor.dtype),
                size=torch.Size(tensor.size),
                chunks=[
                    ChunkStorageMetadata(offsets=torch.Size(p.at), sizes=torch.Size(p.shape))
                    for p in tensor.pieces
                ],
            )
            for name, tensor in self.tensors.items()
        }
        known |= {name: BytesStorageMetadata() for name in self.items}
        return Metadata(state_dict_metadata=known, planner_data=self.planner_data)

    def piece(self, index: MetadataIndex) -> Piece:
        """The piece that torch means. ``Damaged`` if there is none."""
        tensor = self.tensors.get(index.fqn)
        for piece in tensor.pieces if tensor else ():
            if index.offset is None or piece.at == tuple(index.offset):
                return piece
        raise Damaged(f"the checkpoint has no piece of {index.fqn} at {index.offset}")


def _pieces(fields: Fields, manifest: Manifest) -> Pieces:
    dtype = DTYPES.get(fields.text("dtype"))
    if dtype is None:
        raise fields.wrong("dtype")
    size = _numbers(fields, fields.members().get("size"), "size")
    pieces = []
    for entry in fields.sequence("pieces", most=_MOST):
        if not isinstance(entry, list) or len(entry) != 4:
            raise fields.wrong("pieces")
        rank, offset = _numbers(fields, entry[:2], "pieces")
        at, shape = _numbers(fields, entry[2], "pieces"), _numbers(fields, entry[3], "pieces")
        inside = len(at) == len(shape) == len(size) and all(
            begin + extent <= full for begin, extent, full in zip(at, shape, size, strict=True)
        )
        fits = rank < len(manifest.parts) and (
            offset + prod(shape) * dtype.itemsize <= manifest.parts[rank].bytes
        )
        if not inside or not fits:
            raise fields.wrong("pieces")
        pieces.append(Piece(rank=rank, offset=offset, at=at, shape=shape))
    return Pieces(dtype=dtype, size=size, pieces=tuple(pieces))


def _numbers(fields: Fields, given: object, name: str) -> tuple[int, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) > _DIMENSIONS:
        raise fields.wrong(name)
    if not all(type(number) is int and 0 <= number < 2**50 for number in given):
        raise fields.wrong(name)
    return tuple(given)
