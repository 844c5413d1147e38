"""Two checkpoints side by side, tensor by tensor, as they lie in the store."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from outlive.objects.interface import ObjectStore
from outlive.staging.rehearsal import leaves
from outlive.store.fetch import read_blob
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Blob, Chunk, Manifest
from outlive.store.newest import read_manifest
from outlive.store.table import TensorEntry, TensorTable

MOST_ELEMENTS: Final = 1 << 20
"""Of one tensor, that are looked at one by one."""
MOST_TENSORS: Final = 8
_FORMATS: Final = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "bool": "B",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """``most``: the largest distance; ``size``: the largest number. Of those that were looked at."""

    path: str
    dtype: str
    elements: int
    differing: int
    most: float
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """What two checkpoints have in common, and what not."""

    tensors: int
    bytes: int
    values: int
    differing: tuple[str, ...]
    """Paths of tensors."""
    details: tuple[TensorDifference, ...]
    other_values: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.differing or self.other_values)


def compare(store: ObjectStore, run: str, here: CheckpointId, there: CheckpointId) -> Images:
    """Both read and verified where they are not the same objects anyway."""
    one, two = read_manifest(store, run, here), read_manifest(store, run, there)
    table, other = _table(store, one), _table(store, two)
    values, other_values = _values(store, one), _values(store, two)
    paths = [
        path for path in dict.fromkeys((*values, *other_values)) if values.get(path) != other_values.get(path)
    ]
    looks, other_looks = [_look(entry) for entry in table.tensors], [_look(entry) for entry in other.tensors]
    if looks == other_looks:
        differing, details = _images(store, table, (one, two))
    else:
        unlike = [look for look in (*looks, *other_looks) if (look in looks) != (look in other_looks)]
        differing, details = tuple(dict.fromkeys(look.path for look in unlike)), ()
    return Images(
        tensors=len(table.tensors),
        bytes=one.total_bytes,
        values=len(values),
        differing=differing,
        details=details,
        other_values=tuple(paths),
    )


def _images(
    store: ObjectStore, table: TensorTable, manifests: tuple[Manifest, Manifest]
) -> tuple[tuple[str, ...], tuple[TensorDifference, ...]]:
    """Chunks of equal tables are cut alike, and compared one by one: nothing large is ever in memory."""
    one, two = (manifest.parts[0].chunks for manifest in manifests)
    differing: list[str] = []
    details: list[TensorDifference] = []
    for chunk, other in zip(one, two, strict=True):
        if (chunk.blake3, chunk.bytes) == (other.blake3, other.bytes):
            continue
        here = _bytes(store, manifests[0].run, chunk.blob)
        there = _bytes(store, manifests[1].run, other.blob)
        for entry in table.tensors:
            span = _within(entry, chunk)
            if here[span] == there[span]:
                continue
            if entry.path not in differing:
                differing.append(entry.path)
                if len(details) < MOST_TENSORS:
                    details.append(_detail(entry, here[span], there[span]))
    return tuple(differing), tuple(details)


def _within(entry: TensorEntry, chunk: Chunk) -> slice:
    """Where it lies in the chunk; nowhere is an empty slice."""
    start = max(entry.offset, chunk.offset) - chunk.offset
    return slice(
        start, max(start, min(entry.offset + entry.bytes, chunk.offset + chunk.bytes) - chunk.offset)
    )


def _detail(entry: TensorEntry, here: bytes, there: bytes) -> TensorDifference:
    one, two = _numbers(entry.dtype, here), _numbers(entry.dtype, there)
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a != b and not (a != a and b != b)]
    return TensorDifference(
        path=entry.path,
        dtype=entry.dtype,
        elements=len(one),
        differing=len(pairs),
        most=max((abs(a - b) for a, b in pairs), default=0.0),
        size=max((abs(a) for a in one if a == a), default=0.0),
    )


def _numbers(dtype: str, raw: bytes) -> Sequence[float]:
    """The elements, or the raw bytes of a dtype that Python cannot read."""
    if dtype == "bfloat16":
        halves = raw[: 2 * MOST_ELEMENTS]
        wide = b"".join(b"\0\0" + halves[i : i + 2] for i in range(0, len(halves), 2))
        return struct.unpack(f"<{len(wide) // 4}f", wide)
    kind = _FORMATS.get(dtype, "B")
    size = struct.calcsize(kind)
    count = min(len(raw) // size, MOST_ELEMENTS)
    return struct.unpack_from(f"<{count}{kind}", raw)


def _look(entry: TensorEntry) -> TensorEntry:
    """Where it was is no part of what it is."""
    return replace(entry, device="cpu", group=0)


def _table(store: ObjectStore, manifest: Manifest) -> TensorTable:
    return TensorTable.decode(_bytes(store, manifest.run, manifest.parts[0].table))


def _values(store: ObjectStore, manifest: Manifest) -> dict[str, str]:
    return leaves(json.loads(_bytes(store, manifest.run, manifest.parts[0].values)))


def _bytes(store: ObjectStore, run: str, blob: Blob) -> bytes:
    place = bytearray(blob.bytes)
    read_blob(store, run, blob, memoryview(place))
    return bytes(place)
