"""The safetensors format, both ways, without numpy or torch: which tensor lies where in a file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, Final

from outlive.errors import Damaged
from outlive.store.document import is_text

DTYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
"""Our names, and those of safetensors. It has no others."""
_OURS: Final = {theirs: ours for ours, theirs in DTYPES.items()}
_ITEM_BYTES: Final = {
    ours: 1
    if ours in {"bool", "uint8", "int8"} or "float8" in ours
    else int("".join(filter(str.isdigit, ours))) // 8
    for ours in DTYPES
}
_HEADER_BYTES: Final = 100_000_000
"""The format's own bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a file. ``offset`` counts from the file's beginning when it was read."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


def header(tensors: Mapping[str, tuple[str, tuple[int, ...], int]], *, metadata: Mapping[str, str]) -> bytes:
    """The file's head for tensors that follow it without gaps, given as (our dtype, shape, bytes)."""
    members: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape, size) in tensors.items():
        members[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(members, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(path: Path) -> dict[str, Tensor]:
    """What a file holds. ``Damaged`` if it is no safetensors file, or says something that can't be."""
    with path.open("rb") as file:
        return read_tensors(file, where=str(path))


def is_safetensors(path: Path) -> bool:
    """Whether the file begins as one does."""
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") <= _HEADER_BYTES


def read_tensors(file: BinaryIO, *, where: str) -> dict[str, Tensor]:
    """The same of a file that is open at its beginning."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= _HEADER_BYTES:
        raise Damaged(f"{where} is no safetensors file")
    try:
        members = json.loads(file.read(length))
        total = file.seek(0, 2) - 8 - length
        return {
            name: _tensor(told, start=8 + length, total=total)
            for name, told in members.items()
            if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged(f"{where} is no whole safetensors file: {error}") from None


def _tensor(told: Mapping[str, object], *, start: int, total: int) -> Tensor:
    offsets, shape, dtype = told["data_offsets"], told["shape"], told["dtype"]
    if not isinstance(dtype, str) or not is_text(dtype) or dtype not in _OURS:
        raise ValueError(f"unknown dtype {dtype!r}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**50 for n in shape):
        raise ValueError(f"shape {shape!r} is not one")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise ValueError(f"offsets {offsets!r} are none")
    begin, end = offsets
    if not 0 <= begin <= end <= total or end - begin != prod(shape) * _ITEM_BYTES[_OURS[dtype]]:
        raise ValueError(f"a tensor of shape {shape} can't lie from {begin} to {end} of {total} bytes")
    return Tensor(dtype=_OURS[dtype], shape=tuple(shape), offset=start + begin, bytes=end - begin)
