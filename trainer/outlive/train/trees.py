"""Trees of values after they were read: tensors put in, and what the script holds already filled anew.

What was one object in two places when it was saved is one object in two places afterwards.
"""

import collections
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

from outlive.train import generators
from outlive.train.tensors import Stored, bits, revive

_SEQUENCES = (list, collections.deque, bytearray)


def mapped(tree: Any, of: Callable[[Stored], object]) -> Any:
    """The same tree, on containers of its own, with ``of(stored)`` wherever a stored tensor was."""
    known: dict[int, Any] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, Stored):
            return of(node)
        if isinstance(node, tuple):
            return tuple(visit(item) for item in node) if type(node) is tuple else node
        if not isinstance(node, (dict, list, collections.deque)):
            return node
        if id(node) not in known:
            known[id(node)] = _with_items(node, visit)
        return known[id(node)]

    return visit(tree)


def revived(tree: Any) -> Any:
    """The tree with stored tensors made into tensors of their own; what shared memory shares it again."""
    known: dict[tuple[object, ...], torch.Tensor] = {}

    def fresh(stored: Stored) -> torch.Tensor:
        if stored.view.numel() == 0:
            return revive(stored)
        same = (stored.place, stored.dtype, stored.shape, stored.strides, stored.device)
        if same not in known:
            known[same] = revive(stored)
        return known[same]

    return mapped(tree, fresh)


def refilled(given: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved, in the very objects that were given under the same names, where these are of its kind.

    The script may hold a list or a generator that it gave to ``attach`` under a name of its own, too: it must
    not go on with one that is no longer kept.
    """
    known: dict[int, Any] = {}

    def fill(here: Any, value: Any) -> Any:
        if id(value) in known:
            return known[id(value)]
        if not _alike(here, value):
            known[id(value)] = value
            return value
        known[id(value)] = here
        _fill(here, value, fill)
        return here

    filled = {name: fill(given.get(name), value) for name, value in saved.items()}
    return {**given, **filled}


def _with_items(node: Any, visit: Callable[[Any], Any]) -> Any:
    copy = node.copy()
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        copy[key] = visit(value)  # not update(), by which a Counter counts
    return copy


def _alike(here: Any, value: Any) -> bool:
    """Whether `here` can take what `value` holds and be the same then."""
    if isinstance(here, torch.Tensor) and isinstance(value, torch.Tensor):
        return _looks(here) == _looks(value)  # a parameter comes back as a tensor
    if here is None or type(here) is not type(value):
        return False
    if generators.is_generator(here):
        return bool(kind := generators.kind_of(here)) and kind == generators.kind_of(value)
    if isinstance(here, numpy.ndarray):
        return bool(_shape(here) == _shape(value) and here.flags.writeable)
    if isinstance(here, collections.deque):
        return bool(here.maxlen == value.maxlen)
    if isinstance(here, collections.defaultdict):
        return here.default_factory is value.default_factory
    return isinstance(here, (dict, set, *_SEQUENCES))


def _looks(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


def _shape(array: Any) -> tuple[object, ...]:
    return array.dtype, array.shape, array.strides


def _fill(here: Any, value: Any, fill: Callable[[Any, Any], Any]) -> None:
    if generators.is_generator(here):
        generators.put(here, generators.capture(value))
    elif isinstance(here, torch.Tensor):
        bits(here).copy_(bits(value))
    elif isinstance(here, numpy.ndarray):
        here[...] = value
    elif isinstance(here, dict):
        items = {key: fill(here.get(key), item) for key, item in value.items()}
        here.clear()
        for key, item in items.items():
            here[key] = item
    elif isinstance(here, set):
        here.clear()
        here.update(value)
    else:
        fresh = [fill(old, item) for old, item in itertools.zip_longest(list(here)[: len(value)], value)]
        here.clear()
        here.extend(fresh)
