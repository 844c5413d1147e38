"""Reads what ``values`` wrote. Others write to a store too, so every surprise in it is ``Damaged``."""

import base64
import collections
import functools
import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy

from outlive.errors import Damaged
from outlive.train.kinds import TAGS, Kind
from outlive.train.values import MAX_DEPTH, Json

_CHANGING = {"$set", "$dict", "$ordered", "$counter", "$array"} | {
    tag for tag, kind in TAGS.items() if kind.changes
}
_UNFINISHED = object()
_DTYPE = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[248]|<c(8|16)")


def load(raw: bytes) -> Json:
    try:
        return json.loads(raw, parse_constant=_no_constant)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as why:
        raise Damaged(f"the values are not the JSON that outlive writes: {why}") from None


def decode(document: Json, tensors: Sequence[object]) -> Any:
    """The tree that was encoded, with `tensors[i]` wherever the i-th tensor was."""
    try:
        return _Decoder(tensors).decode(document, 0)
    except (ValueError, TypeError, LookupError, ArithmeticError, struct.error) as why:
        raise Damaged(f"the values are not what outlive writes: {why}") from None


class _Decoder:
    def __init__(self, tensors: Sequence[object]) -> None:
        self._tensors = tensors
        self._made: list[object] | None = None
        """What can change of the tree that is being read, in the order in which it begins."""
        self._readers: dict[str, Callable[[Any, int], object]] = {
            "$tensor": self._tensor,
            "$bytes": lambda body, depth: _bytes(body),
            "$float": lambda body, depth: struct.unpack(">d", bytes.fromhex(body))[0],
            "$int": lambda body, depth: int(body, 16),
            "$tuple": lambda body, depth: tuple(self._items(body, depth)),
            "$set": lambda body, depth: set(self._items(body, depth)),
            "$frozenset": lambda body, depth: frozenset(self._items(body, depth)),
            "$dict": lambda body, depth: dict(self._pairs(body, depth)),
            "$ordered": lambda body, depth: collections.OrderedDict(self._pairs(body, depth)),
            "$counter": lambda body, depth: collections.Counter(dict(self._pairs(body, depth))),
            "$array": lambda body, depth: _array(*body),
            **{tag: functools.partial(self._parts, kind) for tag, kind in TAGS.items()},
            "$tree": self._tree,
            "$again": lambda body, depth: self._again(body),
            "$scalar": lambda body, depth: _array(body[0], [], body[1])[()],
        }

    def decode(self, node: Json, depth: int) -> object:
        if depth > 2 * MAX_DEPTH:
            raise ValueError("nested too deep")
        if not isinstance(node, (list, dict)):
            return node
        tag = next(iter(node), "") if isinstance(node, dict) else ""
        if self._made is None or (tag.startswith("$") and tag not in _CHANGING):
            return self._value(node, tag, depth)
        number = len(self._made)
        self._made.append(_UNFINISHED)
        value = self._made[number] = self._value(node, tag, depth)
        return value

    def _value(self, node: Any, tag: str, depth: int) -> object:
        if isinstance(node, list):
            return self._items(node, depth)
        if not tag.startswith("$"):
            return {key: self.decode(value, depth + 1) for key, value in node.items()}
        if len(node) != 1 or tag not in self._readers:
            raise ValueError(f"unknown tag {tag!r}")
        return self._readers[tag](node[tag], depth)

    def _parts(self, kind: Kind, body: Json, depth: int) -> object:
        return kind.together(*self._items(body, depth))

    def _tree(self, body: Json, depth: int) -> object:
        if self._made is not None:
            raise ValueError("a tree in a tree")
        self._made = []
        try:
            return self.decode(body, depth + 1)
        finally:
            self._made = None

    def _again(self, body: Json) -> object:
        made = self._made or []
        if type(body) is not int or not 0 <= body < len(made) or made[body] is _UNFINISHED:
            raise ValueError(f"there is nothing {body!r} to have again")
        return made[body]

    def _tensor(self, body: Json, depth: int) -> object:
        if type(body) is not int or not 0 <= body < len(self._tensors):
            raise ValueError(f"there is no tensor {body!r}")
        return self._tensors[body]

    def _items(self, body: Json, depth: int) -> list[object]:
        if not isinstance(body, list):
            raise ValueError("a list is missing")  # noqa: TRY004 - one kind of damage
        return [self.decode(item, depth + 1) for item in body]

    def _pairs(self, body: Json, depth: int) -> list[tuple[object, object]]:
        if not isinstance(body, list):
            raise ValueError("a list of pairs is missing")  # noqa: TRY004 - one kind of damage
        pairs = []
        for pair in body:
            key, value = self._items(pair, depth)
            pairs.append((key, value))
        return pairs


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _bytes(body: object) -> bytes:
    if not isinstance(body, str):
        raise ValueError("base64 text is missing")  # noqa: TRY004 - one kind of damage
    return base64.b64decode(body, validate=True)


def _array(dtype: str, shape: list[int], body: str, order: Literal["C", "F"] = "C") -> Any:
    if order not in ("C", "F"):
        raise ValueError(f"unknown order {order!r}")
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"unknown dtype {dtype!r}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"shape {shape!r} is not one")
    return numpy.frombuffer(_bytes(body), dtype=dtype).reshape(shape, order=order).copy(order)
