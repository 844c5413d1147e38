"""Generators that user code holds as objects: found, kept as plain text, put back, seeded.

Known are torch.Generator, numpy's Generator and RandomState, and random.Random. The global ones are not
among them; see `randomness`.
"""

import functools
import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy
import torch

from outlive.errors import StateError

Generator: TypeAlias = "torch.Generator | numpy.random.Generator | numpy.random.RandomState | random.Random"

KINDS = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
_GLOBALS = (
    id(torch.default_generator),
    id(getattr(numpy.random.random_sample, "__self__", None)),
    id(getattr(random.random, "__self__", None)),
)
_NUMPY = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_PLACES = {"MT19937": 624, "Philox": 4}
"""How many numbers they make at once; the next one to draw is counted from 0."""
_DEVICE = re.compile(r"[a-z]+(:[0-9]{1,3})?")
_DEPTH = 8
_WIDTH = 64
_OBJECTS = 10_000


def is_generator(value: object) -> bool:
    """Whether it is a generator whose state can be kept."""
    return (
        isinstance(value, KINDS) and id(value) not in _GLOBALS and not isinstance(value, random.SystemRandom)
    )


def is_global(value: object) -> bool:
    """Whether it is one of those that `rng` keeps."""
    return id(value) in _GLOBALS


def kind_of(generator: Any) -> str:
    """Its kind, such that `make` of it can take its state; "" if it is a subclass of the user's."""
    if isinstance(generator, torch.Generator):
        return f"torch/{generator.device}"
    if type(generator) is numpy.random.Generator:
        name = type(generator.bit_generator).__name__
        return f"numpy/{name}" if name in _NUMPY else ""
    if type(generator) is numpy.random.RandomState:
        return "numpy/RandomState" if generator.get_state(legacy=False)["bit_generator"] == "MT19937" else ""
    return "python/Random" if type(generator) is random.Random else ""


def make(kind: str) -> Generator:
    """A generator of this kind. ``ValueError`` for one that there is not."""
    family, _, name = kind.partition("/")
    if kind == "python/Random":
        return random.Random(0)  # noqa: S311 - its state is about to be set
    if kind == "numpy/RandomState":
        return numpy.random.RandomState(0)
    if family == "numpy" and name in _NUMPY:
        return numpy.random.Generator(getattr(numpy.random, name)(0))
    if family == "torch" and _DEVICE.fullmatch(name):
        return _on(name)
    raise ValueError(f"there is no generator {kind!r}")


def capture(generator: Any) -> bytes | str:
    """Its whole state."""
    if isinstance(generator, torch.Generator):
        return bytes(generator.get_state().numpy())
    if isinstance(generator, numpy.random.Generator):
        return json.dumps(generator.bit_generator.state, default=_listed)
    if isinstance(generator, numpy.random.RandomState):
        return json.dumps(generator.get_state(legacy=False), default=_listed)
    return json.dumps(generator.getstate())


def put(generator: Any, state: Any) -> None:
    """Set it to a state that `capture` took of one of its kind."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, numpy.random.Generator):
        generator.bit_generator.state = sound(_arrays(json.loads(state)))
    elif isinstance(generator, numpy.random.RandomState):
        generator.set_state(sound(_arrays(json.loads(state))))
    else:
        version, words, gauss = json.loads(state)
        generator.setstate((version, tuple(words), gauss))


def sound(state: Any) -> Any:
    """The same. ``ValueError`` for a state of numpy's that points outside of itself: numpy reads there."""
    if not isinstance(state, dict):
        raise ValueError("a generator's state is no mapping")  # noqa: TRY004 - one kind of damage
    kind = state.get("bit_generator")
    if kind in _PLACES:
        place = state["buffer_pos"] if kind == "Philox" else state["state"]["pos"]
        if not isinstance(place, int) or not 0 <= place <= _PLACES[kind]:
            raise ValueError(f"a state of {kind} has no place {place!r}")
    return state


def _on(device: str) -> torch.Generator:
    try:
        return torch.Generator(device)
    except RuntimeError:
        raise StateError(
            f"the checkpoint holds a random generator of {device}, and there is no such device here",
            hint="resume on a machine with that device, or give the run a generator of the cpu",
        ) from None


def reseed(generator: Any, seed: int) -> None:
    """Seed it, whatever kind it is, without making another of it: user code holds references."""
    if isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    elif isinstance(generator, numpy.random.RandomState):
        name = generator.get_state(legacy=False)["bit_generator"]
        fresh = getattr(numpy.random, name)(seed).state
        generator.set_state({**fresh, "has_gauss": 0, "gauss": 0.0})
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    else:
        generator.seed(seed)


def find(roots: Iterable[object]) -> list[Any]:
    """Every generator within eight references of `roots`, in a fixed order.

    Attributes, lists, tuples, dicts and partials are followed, the first 64 of each: augmentations keep their
    generators inside a list inside a pipeline inside a data set inside a subset.
    """
    found: list[Any] = []
    seen: set[int] = set()
    level = list(roots)
    for _ in range(_DEPTH + 1):
        below: list[object] = []
        for value in level:
            if id(value) in seen or len(seen) >= _OBJECTS:
                continue
            seen.add(id(value))
            if is_generator(value):
                found.append(value)
            else:
                below.extend(_held(value))
        level = below
    return found


def _held(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from list(value.values())[:_WIDTH]
    elif isinstance(value, (list, tuple)):
        yield from value[:_WIDTH]
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args[:_WIDTH], *list(value.keywords.values())[:_WIDTH])
    elif not isinstance(value, (type, torch.Tensor, numpy.ndarray, str, bytes, int, float)):
        owner = getattr(value, "__self__", None)  # a bound method as collate_fn
        if owner is not None:
            yield owner
        inside = getattr(value, "__dict__", None)
        if isinstance(inside, dict):
            yield from list(inside.values())[:_WIDTH]


def _listed(value: Any) -> Any:
    return value.tolist()


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _arrays(value) for key, value in state.items()}
    return numpy.array(state, dtype=numpy.uint64) if isinstance(state, list) else state
