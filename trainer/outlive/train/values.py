"""The closed set of types that a checkpoint may hold beside tensors, to JSON and back, bit for bit.

Nothing here names or runs code. Whatever is outside the set is refused with its path, all refusals at once.
The tags are those of docs/FORMAT.md, "The values".
"""

import base64
import collections
import functools
import json
import math
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy
import torch

from outlive.errors import StateError
from outlive.train.advice import advice, dtype_advice
from outlive.train.kinds import KINDS, Inexact, Kind
from outlive.train.parts import KnownPart, Met, Part
from outlive.train.tensors import Named, obstacle

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Trail: TypeAlias = "tuple[Trail | None, object]"

MAX_DEPTH = 100
_SHOWN = 20
_DTYPE_KINDS = "biufc"
_NESTING = frozenset((list, tuple, dict, collections.OrderedDict, collections.Counter, *KINDS))
_CHANGING = frozenset((list, dict, set, collections.OrderedDict, collections.Counter, numpy.ndarray)) | {
    kind for kind, row in KINDS.items() if row.changes
}
_WIDEST = 16  # a long double has no meaning on another machine
HINT = (
    "keep what it is made of (numbers, text, lists, dicts, tensors), give it state_dict() and "
    "load_state_dict(), or leave it out of what outlive tracks"
)


class Encoder:
    """Turns trees into JSON; its tensors and everything that cannot be kept are collected aside.

    One encoder serves one snapshot: the tensor numbers of all its trees count through.
    """

    def __init__(self, known: Mapping[str, KnownPart] | None = None) -> None:
        """`known` are parts that need not be described again if they still read the same."""
        self.tensors: dict[int, Named] = {}
        """By number, those of known parts left out."""
        self.met: list[Met] = []
        self.entangled = False
        """Whether a tree with a part in it holds an object twice, by a number that counts the part too."""
        self.problems: list[str] = []
        self._known = known or {}
        self._token = secrets.token_hex(16)
        self._count = 0
        self._nodes: dict[int, dict[str, Json]] = {}
        self._open: set[int] = set()
        self._met: dict[int, tuple[int, object]] = {}
        self._shared = False
        self._writers: dict[type, Callable[[Any, Trail, int], Json]] = {
            float: self._float,
            str: self._text,
            bytes: lambda value, trail, depth: {"$bytes": _base64(value)},
            list: self._items,
            tuple: self._tuple,
            set: lambda value, trail, depth: {"$set": self._set(value, trail, depth)},
            frozenset: lambda value, trail, depth: {"$frozenset": self._set(value, trail, depth)},
            dict: self._dict,
            collections.OrderedDict: lambda value, *where: {"$ordered": self._pairs(value, *where)},
            collections.Counter: lambda value, *where: {"$counter": self._pairs(value, *where)},
            numpy.ndarray: self._array,
            Named: self._named,
            Part: self._part,
            **{kind: functools.partial(self._parts, row) for kind, row in KINDS.items()},
        }

    def encode(self, value: object, at: str) -> Json:
        """JSON for a tree. `at` says where it hangs, for messages: "optimizer" or "run.state"."""
        self._met, self._shared = {}, False
        parts = len(self.met)
        node = self._encode(value, (None, at), 0)
        self.entangled = self.entangled or (self._shared and len(self.met) > parts)
        return {"$tree": node} if self._shared else node

    def check(self) -> None:
        """Raise if anything that was encoded cannot be kept."""
        if self.problems:
            shown = self.problems[:_SHOWN]
            if len(self.problems) > _SHOWN:
                shown.append(f"and {len(self.problems) - _SHOWN} more")
            raise StateError("\n".join(shown), hint=HINT)

    def renumber(self, order: Sequence[int]) -> None:
        """Make ``order[i]``, so far a tensor's number, its new number i, in all that was encoded."""
        for position, number in enumerate(order):
            node = self._nodes.get(number)
            if node is not None:
                node["$tensor"] = position

    def texts(self) -> dict[str, str]:
        """The JSON of all parts, by what stands for them in the rest."""
        return {
            one.token: self._known[one.name].text if one.node is None else _text(one.node) for one in self.met
        }

    def _encode(self, value: Any, trail: Trail, depth: int) -> Json:
        kind = type(value)
        if value is None or kind is bool:
            return cast(Json, value)
        if kind is int:
            return _integer(value)
        writer = self._writers.get(kind)
        if writer is None:
            return self._other(value, trail)
        if depth > MAX_DEPTH:
            return self._refuse(trail, f"nested deeper than {MAX_DEPTH}")
        if kind in _NESTING and id(value) in self._open:
            return self._refuse(trail, "contains itself")
        if kind in _CHANGING and id(value) in self._met:
            self._shared = True
            return {"$again": self._met[id(value)][0]}
        if kind in _CHANGING:
            self._met[id(value)] = (len(self._met), value)  # held, so that nothing else takes its id
        self._open.add(id(value))
        try:
            return writer(value, trail, depth)
        finally:
            self._open.discard(id(value))

    def _refuse(self, trail: Trail, why: str) -> Json:
        self.problems.append(f"{_path(trail)}: {why}")
        return None

    def _other(self, value: Any, trail: Trail) -> Json:
        if isinstance(value, torch.Tensor):
            why = obstacle(value)
            if why is not None:
                return self._refuse(trail, why)
            return self._named(Named(tensor=value, path=_table_path(trail)), trail, 0)
        if isinstance(value, numpy.generic) and _plain(value.dtype):
            little = value.dtype.newbyteorder("<")
            return {"$scalar": [little.str, _base64(value.astype(little).tobytes())]}
        return self._refuse(trail, f"{_type_text(value)}{advice(value)}")

    def _parts(self, row: Kind, value: Any, trail: Trail, depth: int) -> Json:
        try:
            parts = row.apart(value)
        except Inexact as why:
            return self._refuse(trail, f"{_type_text(value)} ({why})")
        return {row.tag: [self._encode(part, trail, depth + 1) for part in parts]}

    def _named(self, value: Named, trail: Trail, depth: int) -> Json:
        why = obstacle(value.tensor)
        if why is not None:
            self.problems.append(f"{value.path.replace('/', '.')}: {why}")
            return None
        node: dict[str, Json] = {"$tensor": self._count}
        self.tensors[self._count] = value
        self._nodes[self._count] = node
        self._count += 1
        return node

    def _part(self, value: Part, trail: Trail, depth: int) -> Json:
        name, start = _table_path(trail), self._count
        known, node = self._known.get(name), None
        if known is not None and known.holds(value):
            self._count += len(value.tensors)
        else:
            node = self._encode(value.build(), trail, depth)
        token = f"{self._token}{len(self.met)}."
        met = Met(name=name, token=token, part=value, start=start, end=self._count, node=node)
        self.met.append(met)
        return token

    def _float(self, value: float, trail: Trail, depth: int) -> Json:
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}

    def _text(self, value: str, trail: Trail, depth: int) -> Json:
        try:
            value.encode()
        except UnicodeEncodeError:
            return self._refuse(trail, "text with a lone surrogate, which is not Unicode")
        return value

    def _items(self, values: Iterable[Any], trail: Trail, depth: int) -> list[Json]:
        return [self._encode(item, (trail, _Index(i)), depth + 1) for i, item in enumerate(values)]

    def _tuple(self, values: tuple[Any, ...], trail: Trail, depth: int) -> Json:
        return {"$tuple": self._items(values, trail, depth)}

    def _set(self, values: Iterable[Any], trail: Trail, depth: int) -> list[Json]:
        before = len(self._met), len(self.tensors)
        items = sorted(self._items(values, trail, depth), key=json.dumps)
        if before != (len(self._met), len(self.tensors)):
            return [self._refuse(trail, "a set of things that can change (keep a list of them)")]
        return items

    def _pairs(self, mapping: Mapping[Any, Any], trail: Trail, depth: int) -> list[Json]:
        pairs: list[Json] = []
        for key, value in mapping.items():
            inner: Trail = (trail, key)
            if isinstance(key, torch.Tensor):
                self._refuse(inner, "a tensor as a key")
            else:
                pairs.append([self._encode(key, inner, depth + 1), self._encode(value, inner, depth + 1)])
        return pairs

    def _dict(self, value: Mapping[Any, Any], trail: Trail, depth: int) -> Json:
        if not all(type(key) is str and not key.startswith("$") for key in value):
            return {"$dict": self._pairs(value, trail, depth)}
        for key in value:
            self._text(key, (trail, key), depth)
        return {key: self._encode(item, (trail, key), depth + 1) for key, item in value.items()}

    def _array(self, value: Any, trail: Trail, depth: int) -> Json:
        if not _plain(value.dtype):
            return self._refuse(trail, f"numpy array of dtype {value.dtype}{dtype_advice(value.dtype)}")
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        body: list[Json] = [little.dtype.str, list(value.shape)]
        if value.flags.f_contiguous and not value.flags.c_contiguous:
            return {"$array": [*body, _base64(little.tobytes("F")), "F"]}
        return {"$array": [*body, _base64(little.tobytes())]}


def dump(document: Json, texts: Mapping[str, str] | None = None) -> bytes:
    """Bytes of a document, with the `texts` of parts where their tokens stand."""
    text = _text(document)
    for token, part in (texts or {}).items():
        text = text.replace(f'"{token}"', part)
    return text.encode()


def _text(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


class _Index(int):
    """A position in a sequence, as opposed to a key of a dict."""


def _path(trail: Trail) -> str:
    """As one would write it in Python: optimizer.param_groups[0]['foo']."""
    keys = _keys(trail)
    text = str(keys[0])
    for level, key in enumerate(keys[1:]):
        if level == 0 and isinstance(key, str) and key.isidentifier():
            text += f".{key}"
        else:
            text += f"[{int(key)}]" if isinstance(key, _Index) else f"[{key!r}]"
    return text


def _table_path(trail: Trail) -> str:
    return "/".join(str(int(key)) if isinstance(key, _Index) else str(key) for key in _keys(trail))


def _keys(trail: Trail) -> list[object]:
    keys: list[object] = []
    step: Trail | None = trail
    while step is not None:
        keys.append(step[1])
        step = step[0]
    return keys[::-1]


def _type_text(value: object) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"object of type {module}{kind.__qualname__}"


def _integer(value: int) -> Json:
    return value if -(2**63) <= value < 2**64 else {"$int": f"{value:x}"}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _plain(dtype: "numpy.dtype[Any]") -> bool:
    widest = _WIDEST if dtype.kind == "c" else _WIDEST // 2
    return dtype.kind in _DTYPE_KINDS and dtype.itemsize <= widest and dtype.isnative
