"""The tensor table: which tensor lies where in an image, read without trusting it."""

import re
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from outlive.errors import Damaged
from outlive.store.document import DOCUMENT_BYTES, Fields, Json, decode, encode

ALIGNMENT: Final = 64
"""Every tensor's offset is a multiple of this."""

Raw: TypeAlias = bytes  # inside the classes below, ``bytes`` is a number

_DTYPE: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_DEVICE: Final = re.compile(r"[a-z][a-z0-9_]{0,31}(?::[0-9]{1,5})?")
_MOST_DIMENSIONS: Final = 64
_MOST_BYTES: Final = 2**50
MAX_RANK: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor, row-major in the image. ``strides``: those it had in memory, if it was dense otherwise.

    With ranks: ``whole`` is the shape of which this is a piece that begins ``at``, and ``owner`` the rank in
    whose part its bytes lie, under the same path; then ``bytes`` is 0.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    device: str
    strides: tuple[int, ...] | None = None
    group: int = 0
    whole: tuple[int, ...] | None = None
    at: tuple[int, ...] | None = None
    owner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTable:
    """All tensors of one rank's image of ``bytes`` bytes, in the order in which the values refer to them."""

    bytes: int
    tensors: tuple[TensorEntry, ...]

    def encode(self) -> Raw:
        return encode(
            "table", {"bytes": self.bytes, "tensors": [_entry_json(entry) for entry in self.tensors]}
        )

    @classmethod
    def decode(cls, raw: Raw, *, where: str = "the tensor table") -> "TensorTable":
        """The reverse. ``Damaged`` if a tensor lies outside the image or overlaps another in part."""
        fields = decode(raw, "table", where=where)
        total = fields.integer("bytes", high=_MOST_BYTES)
        entries = fields.objects("tensors", most=DOCUMENT_BYTES // 64)
        table = cls(bytes=total, tensors=tuple(_entry(entry, total=total) for entry in entries))
        table.extents(where=where)
        return table

    def extents(self, *, where: str = "the tensor table") -> list[TensorEntry]:
        """One entry for each stretch of bytes that holds a tensor, in order; empty tensors have none."""
        found: list[TensorEntry] = []
        for entry in sorted((e for e in self.tensors if e.bytes), key=lambda e: e.offset):
            last = found[-1] if found else None
            if last and entry.offset == last.offset:
                if (entry.bytes, entry.group) != (last.bytes, last.group):
                    raise Damaged(f"{where}: {entry.path} and {last.path} share a part of their bytes")
                continue
            if last and (entry.offset < last.offset + last.bytes or entry.group < last.group):
                raise Damaged(f"{where}: {entry.path} overlaps {last.path}, or is in an earlier group")
            found.append(entry)
        return found


def _entry_json(entry: TensorEntry) -> Json:
    members: dict[str, Json] = {
        "path": entry.path,
        "dtype": entry.dtype,
        "shape": entry.shape,
        "offset": entry.offset,
        "bytes": entry.bytes,
        "device": entry.device,
    }
    if entry.strides is not None:
        members["strides"] = entry.strides
    if entry.whole is not None:
        members |= {"global": entry.whole, "at": entry.at}
    if entry.owner is not None:
        members["owner"] = entry.owner
    return {**members, "group": entry.group}


def _entry(fields: Fields, *, total: int) -> TensorEntry:
    size = fields.integer("bytes", high=total)
    offset = fields.integer("offset", high=total - size)
    shape = _dimensions(fields, "shape")
    strides = _dimensions(fields, "strides") if fields.has("strides") else None
    whole = _dimensions(fields, "global") if fields.has("global") else None
    at = _dimensions(fields, "at") if fields.has("at") else None
    owner = fields.integer("owner", high=MAX_RANK) if fields.has("owner") else None
    elements = prod(shape)
    # An element has at least one bit and at most 16 bytes, whatever its dtype is called.
    fits = size == 0 if owner is not None else elements <= size * 8 and size <= elements * 16
    if offset % ALIGNMENT or not fits:
        raise fields.wrong("offset, bytes or shape")
    if not _inside(shape, whole, at):
        raise fields.wrong("global or at")
    if strides is not None and len(strides) != len(shape):
        raise fields.wrong("strides")
    return TensorEntry(
        path=fields.text("path"),
        dtype=fields.text("dtype", pattern=_DTYPE),
        shape=shape,
        offset=offset,
        bytes=size,
        device=fields.text("device", pattern=_DEVICE),
        strides=strides,
        group=fields.integer("group", high=2**31),
        whole=whole,
        at=at,
        owner=owner,
    )


def _inside(shape: tuple[int, ...], whole: tuple[int, ...] | None, at: tuple[int, ...] | None) -> bool:
    """Whether this is a piece of that; a tensor that is no piece of anything says neither."""
    if whole is None or at is None:
        return whole is at
    return len(shape) == len(whole) == len(at) and all(
        begin + size <= full for begin, size, full in zip(at, shape, whole, strict=True)
    )


def _dimensions(fields: Fields, name: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for number in fields.sequence(name, most=_MOST_DIMENSIONS):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_BYTES:
            raise fields.wrong(name)
        numbers.append(number)
    return tuple(numbers)
