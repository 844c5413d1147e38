"""Types of values beside the plain ones: a row each, with the parts that one is made of and its way back.

A part is a value itself. What a row can't bring back as it was is refused, never changed. See docs/FORMAT.md.
"""

import collections
import datetime
import decimal
import fractions
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from outlive.train import generators

T = TypeVar("T")

_FACTORIES: dict[str, type] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set)
}


class Inexact(Exception):
    """A value that would come back as another one; the message says what to keep instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type: its tag, a value's parts, and the value made of parts that may be anyone's."""

    tag: str
    apart: Callable[[Any], Sequence[Any]]
    together: Callable[..., Any]
    changes: bool = False
    """Whether such a value can change, so that it matters whether two names mean the same one."""


def _default_apart(value: "collections.defaultdict[Any, Any]") -> Sequence[Any]:
    factory = value.default_factory
    if factory is None:
        return None, dict(value)
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise Inexact(f"its factory is none of {', '.join(_FACTORIES)}: keep dict() of it")
    return name, dict(value)


def _default(name: object, items: object) -> object:
    factory = None if name is None else _FACTORIES[_is(name, str)]
    return collections.defaultdict(factory, _is(items, dict))


def _deque(longest: object, items: object) -> object:
    return collections.deque(_is(items, list), None if longest is None else _is(longest, int))


def _moment_apart(value: Any) -> Sequence[Any]:
    text, fold = value.isoformat(), getattr(value, "fold", 0)
    if repr(_moment(type(value))(text, fold)) != repr(value):
        raise Inexact("its time zone is not a fixed offset: keep its isoformat()")
    return text, fold


def _moment(kind: Any) -> Callable[[str, int], Any]:
    def together(text: str, fold: int) -> Any:
        moment = kind.fromisoformat(text)
        return moment.replace(fold=fold) if fold else moment

    return together


def _generator_apart(value: Any) -> Sequence[Any]:
    if generators.is_global(value):
        raise Inexact("the global generators are always kept: leave it out")
    kind = generators.kind_of(value)
    if not kind:
        raise Inexact("its bit generator is none of numpy's own")
    return kind, generators.capture(value)


def _generator(kind: object, state: object) -> object:
    made = generators.make(_is(kind, str))
    raw = _is(state, bytes if isinstance(made, torch.Generator) else str)
    try:
        generators.put(made, raw)
    except RuntimeError as why:
        raise ValueError(str(why)) from None
    return made


def _is(part: Any, kind: type[T]) -> T:
    if type(part) is not kind:
        raise TypeError(f"{type(part).__name__} instead of {kind.__name__}")
    return part


_GENERATOR = Kind(tag="$generator", apart=_generator_apart, together=_generator, changes=True)

KINDS: dict[type, Kind] = {
    complex: Kind(
        tag="$complex",
        apart=lambda value: (value.real, value.imag),
        together=lambda real, imag: complex(_is(real, float), _is(imag, float)),
    ),
    bytearray: Kind(
        tag="$bytearray",
        apart=lambda value: (bytes(value),),
        together=lambda raw: bytearray(_is(raw, bytes)),
        changes=True,
    ),
    torch.Size: Kind(
        tag="$size", apart=lambda value: tuple(value), together=lambda *sizes: torch.Size(sizes)
    ),
    range: Kind(
        tag="$range",
        apart=lambda value: (value.start, value.stop, value.step),
        together=range,
    ),
    slice: Kind(
        tag="$slice",
        apart=lambda value: (value.start, value.stop, value.step),
        together=slice,
    ),
    collections.deque: Kind(
        tag="$deque", apart=lambda value: (value.maxlen, list(value)), together=_deque, changes=True
    ),
    collections.defaultdict: Kind(tag="$default", apart=_default_apart, together=_default, changes=True),
    decimal.Decimal: Kind(
        tag="$decimal",
        apart=lambda value: (str(value),),
        together=lambda text: decimal.Decimal(_is(text, str)),
    ),
    fractions.Fraction: Kind(
        tag="$fraction",
        apart=lambda value: (value.numerator, value.denominator),
        together=lambda over, under: fractions.Fraction(_is(over, int), _is(under, int)),
    ),
    pathlib.PosixPath: Kind(
        tag="$path",
        apart=lambda value: (str(value),),
        together=lambda text: pathlib.PosixPath(_is(text, str)),
    ),
    datetime.datetime: Kind(tag="$datetime", apart=_moment_apart, together=_moment(datetime.datetime)),
    datetime.date: Kind(tag="$date", apart=_moment_apart, together=_moment(datetime.date)),
    datetime.time: Kind(tag="$time", apart=_moment_apart, together=_moment(datetime.time)),
    datetime.timedelta: Kind(
        tag="$timedelta",
        apart=lambda value: (value.days, value.seconds, value.microseconds),
        together=datetime.timedelta,
    ),
    **dict.fromkeys(generators.KINDS, _GENERATOR),
}
TAGS: dict[str, Kind] = {kind.tag: kind for kind in KINDS.values()}
