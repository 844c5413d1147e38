"""What to keep instead of a value that can't be kept: a few words for each kind of thing people try."""

import collections
import dataclasses
import enum
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy

_COUNTED = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, collections.deque)


def advice(value: Any) -> str:
    """In brackets, to go behind the type's name; nothing where there is nothing better than the hint."""
    for fits, say in _ADVICE:
        if fits(value):
            return f" ({say(value)})"
    return ""


def dtype_advice(dtype: "numpy.dtype[Any]") -> str:
    """The same for an array, by its dtype."""
    if not dtype.isnative:
        return " (keep it in this machine's byte order: astype(dtype.newbyteorder('=')))"
    return f" ({_DTYPES[dtype.kind]})" if dtype.kind in _DTYPES else ""


def _base(value: object) -> str:
    return next(kind.__name__ for kind in _COUNTED if isinstance(value, kind))


def _is_stateful(value: object) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


_DTYPES = {
    "V": "keep its fields, an array each",
    "U": "keep its tolist()",
    "S": "keep its tolist()",
    "O": "keep its tolist()",
    "M": "keep it astype('int64')",
    "m": "keep it astype('int64')",
    "f": "keep it astype('float64')",
    "c": "keep it astype('complex128')",
}
_ADVICE: list[tuple[Callable[[Any], bool], Callable[[Any], str]]] = [
    (lambda value: isinstance(value, random.SystemRandom), lambda value: "it has no state: leave it out"),
    (_is_stateful, lambda value: "hand it to attach() or run.track() under a name of its own"),
    (lambda value: isinstance(value, enum.Enum), lambda value: "keep its .value"),
    (lambda value: hasattr(value, "_asdict"), lambda value: "keep its _asdict()"),
    (
        lambda value: dataclasses.is_dataclass(value) and not isinstance(value, type),
        lambda value: "keep dataclasses.asdict() of it",
    ),
    (lambda value: isinstance(value, memoryview), lambda value: "keep bytes() of it"),
    (
        lambda value: isinstance(value, (type, types.FunctionType, types.MethodType, types.ModuleType)),
        lambda value: "code is no state: leave it out",
    ),
    (lambda value: isinstance(value, Iterator), lambda value: "it can't be rewound: keep a count"),
    (lambda value: isinstance(value, numpy.ndarray), lambda value: "keep numpy.asarray() of it"),
    (lambda value: isinstance(value, numpy.generic), lambda value: "keep its item()"),
    (lambda value: isinstance(value, _COUNTED), lambda value: f"keep {_base(value)}() of it"),
]
