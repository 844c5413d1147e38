"""State that is no tensor: kept as plain values of the closed set, as a pickle only if that is asked for."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

from outlive.errors import Damaged, StateError
from outlive.store.document import Json
from outlive.train.values import Encoder
from outlive.train.values_read import decode

HINT = (
    "keep what it is made of (numbers, text, lists, dicts, tensors), or say allow_pickle=True to the "
    "writer and to the reader: loading then runs whatever the pickle in the store says"
)


def encode_items(planner: SavePlanner, items: Sequence[WriteItem], *, allow_pickle: bool) -> dict[str, Json]:
    """Each value by its name: ``{"value": ...}``, or ``{"pickled": ...}`` where that is allowed and needed.

    ``StateError`` names everything that can't be kept otherwise.
    """
    document: dict[str, Json] = {}
    problems: list[str] = []
    for item in items:
        name = item.index.fqn
        encoder = Encoder()
        known, value, raw = _value(planner, item)
        node = encoder.encode(value, at=name) if known else None
        found = encoder.problems or ([f"{name}: holds a tensor"] if encoder.tensors else [])
        if not known:
            found = [f"{name}: what its planner made of it holds more than plain values"]
        if not found:
            document[name] = {"value": node}
        elif allow_pickle:
            document[name] = {"pickled": Encoder().encode(raw or _saved(value), at=name)}
        else:
            problems += found
    if problems:
        raise StateError("\n".join(problems[:20]), hint=HINT)
    return document


def as_torch_made_it(name: str, document: Mapping[str, object]) -> io.BytesIO:
    """What a planner expects: bytes of ``torch.save``. Made here from plain values, unless it is a pickle."""
    node = document.get(name)
    if not isinstance(node, dict) or len(node) != 1:
        raise Damaged(f"the checkpoint's values hold no {name}")
    if "pickled" in node:
        raw = decode(node["pickled"], ())
        if not isinstance(raw, bytes):
            raise Damaged(f"the pickle of {name} is no bytes")
        return io.BytesIO(raw)
    return io.BytesIO(_saved(decode(node.get("value"), ())))


def pickled(names: Sequence[str], document: Mapping[str, object]) -> list[str]:
    """Those that can be had only by running a pickle."""
    return [name for name in names if isinstance(node := document.get(name), dict) and "pickled" in node]


def _value(planner: SavePlanner, item: WriteItem) -> tuple[bool, Any, bytes]:
    """Whether the value is known, the value, and its bytes where a planner of another kind made them."""
    kind = type(planner)
    if (
        issubclass(kind, DefaultSavePlanner)
        and kind.transform_object is DefaultSavePlanner.transform_object
        and kind.resolve_data is DefaultSavePlanner.resolve_data
    ):
        return True, cast(DefaultSavePlanner, planner).lookup_object(item.index), b""
    raw = cast(io.BytesIO, planner.resolve_data(item)).getvalue()
    try:
        return True, torch.load(io.BytesIO(raw), weights_only=True), raw
    except Exception:  # whatever it is, it is not what torch reads as plain values
        return False, None, raw


def _saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()
