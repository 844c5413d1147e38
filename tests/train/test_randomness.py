"""Random worlds apart from the training's, and generators kept as objects."""

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch

from outlive.train import generators
from outlive.train.randomness import Aside, Private, mix, seed_globals
from train.loop_lives import rng_digest, seed_all


def draw_all() -> tuple[float, float, float]:
    """One number from each global generator."""
    return random.gauss(0, 1), float(numpy.random.standard_normal()), torch.randn(()).item()


def test_nothing_has_happened_outside() -> None:
    """Whatever is drawn or seeded aside: outside the numbers go on, with the Gaussian held back."""
    seed_all(4)
    before = rng_digest()
    bits = numpy.random.mtrand.get_bit_generator()
    aside = Aside()

    def fail() -> None:
        with aside, aside:
            seed_globals(9, aside.bits)
            draw_all()
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert before == rng_digest()
    assert numpy.random.mtrand.get_bit_generator() is bits


def test_a_generator_of_another_kind_comes_back() -> None:
    """Someone may have exchanged numpy's global generator."""
    twister = numpy.random.mtrand.get_bit_generator()
    own = numpy.random.PCG64(3)
    numpy.random.mtrand.set_bit_generator(own)
    try:
        numpy.random.standard_normal()
        expected = numpy.random.RandomState(numpy.random.PCG64(3)).standard_normal(3)
        aside = Aside()
        with aside:
            seed_globals(1, aside.bits)
        assert list(expected[1:]) == [numpy.random.standard_normal(), numpy.random.standard_normal()]
    finally:
        numpy.random.mtrand.set_bit_generator(twister)


class Endless:
    """Begins anew when it is asked once more after its end."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.count += 1
        if self.count % 4 == 0:
            raise StopIteration
        return draw_all()


def test_a_private_world_is_the_same_again() -> None:
    """From its start, after some items, and whatever is drawn outside meanwhile; its end is its end."""
    aside = Aside()
    items = list(Private(Endless(), 5, aside=aside, quiet=False))
    again = Private(Endless(), 5, aside=aside, quiet=False)
    again.skip(1)
    rest = []
    for item in again:
        draw_all()
        rest.append(item)
    assert len(items) == 3
    assert items[1:] == rest
    assert list(again) == []
    assert items != list(Private(Endless(), 6, aside=aside, quiet=False))


@pytest.mark.parametrize(
    "make",
    [
        torch.Generator,
        random.Random,
        numpy.random.RandomState,
        lambda: numpy.random.RandomState(numpy.random.PCG64(1)),
        numpy.random.default_rng,
        lambda: numpy.random.Generator(numpy.random.MT19937(1)),
        lambda: numpy.random.Generator(numpy.random.Philox(1)),
        lambda: numpy.random.Generator(numpy.random.SFC64(1)),
        lambda: numpy.random.Generator(numpy.random.PCG64DXSM(1)),
    ],
)
def test_a_generator_is_captured_put_and_seeded(make: Any) -> None:
    """Every kind, in its own place."""

    def draws() -> list[float]:
        if isinstance(it, torch.Generator):
            return [torch.rand((), generator=it).item() for _ in range(3)]
        return [it.random() for _ in range(3)] + [it.gauss(0, 1) if hasattr(it, "gauss") else it.normal()]

    it = make()
    draws()
    state = generators.capture(it)
    expected = draws()
    generators.put(it, state)
    assert expected == draws()
    generators.reseed(it, 2**63 + 7)
    expected = draws()
    generators.reseed(it, 2**63 + 7)
    assert expected == draws()
    assert generators.is_generator(it)


def test_the_global_generators_are_nobodys() -> None:
    """Whoever holds a reference to one of them must not have it put back with his own."""
    own = (torch.default_generator, random.random.__self__, numpy.random.random_sample.__self__)  # type: ignore[attr-defined]
    assert [generators.is_generator(each) for each in own] == [False] * 3
    assert not generators.is_generator(random.SystemRandom())


def test_generators_are_found_once_and_in_order() -> None:
    """Also where objects refer to each other in a circle."""
    first, second = random.Random(), torch.Generator()
    circle: dict[str, Any] = {"a": [first], "b": (second, first)}
    circle["self"] = circle
    assert generators.find([circle, first]) == [first, second]


def test_seeds_differ_by_purpose() -> None:
    """Of the loop, of the batch, of the worker."""
    seeds = {mix(seed, what) for seed in range(50) for what in (*range(50), "order", "start")}
    assert len(seeds) == 50 * 52
