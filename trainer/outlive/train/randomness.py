"""What the data draws is its own: it neither disturbs the training's random numbers nor depends on them.

Everything here concerns python's, numpy's and torch's global CPU generators. A device's generators are left
alone, since a data set on the device draws in the training's own order, which a resume restores anyway.
"""

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any

import numpy
import torch
from numpy.random import MT19937
from numpy.random.mtrand import get_bit_generator, set_bit_generator


def mix(seed: int, what: int | str) -> int:
    """A seed of 64 bits for one purpose, made from the seed of the whole."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{what}".encode(), digest_size=8).digest(), "little")


def draw() -> int:
    """One number from torch's global generator: all that a loop takes of the training's random numbers."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def seed_globals(seed: int, bits: MT19937) -> None:
    """Seed the three generators. numpy's draws from `bits` from here on.

    Not `torch.manual_seed`, which would seed the devices too. numpy and torch take 32 bits each, other ones.
    """
    random.seed(seed)
    set_bit_generator(bits)
    numpy.random.seed(seed >> 32)
    torch.default_generator.manual_seed(seed)


class Aside:
    """While entered, the three generators may be seeded and drawn from at will. Then they are as before.

    Entering again inside does nothing, so that a sampler drawn from inside a fetch costs no second copy. Of
    the 45 microseconds it costs, 32 are numpy's copy of 624 words one by one, taken only to learn whether
    it holds a second Gaussian back; the generator itself is exchanged as an object.
    """

    def __init__(self) -> None:
        self.bits = MT19937(0)
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._python = random.getstate()
            self._numpy = numpy.random.get_state(legacy=False)
            self._numpy_bits = get_bit_generator()
            self._torch = torch.default_generator.get_state()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            random.setstate(self._python)
            set_bit_generator(self._numpy_bits)
            if self._numpy["has_gauss"]:
                numpy.random.set_state(self._numpy)
            torch.default_generator.set_state(self._torch)


class Private(Iterator[Any]):
    """Iterates `source` in a random world of its own, so that the same seed gives the same items again.

    `quiet` says that the source draws nothing from the global generators after its first item.
    """

    def __init__(self, source: Iterable[Any], seed: int, *, aside: Aside, quiet: bool) -> None:
        self._aside = aside
        self._quiet = quiet
        self._begun = False
        self._ended = False
        self._bits = MT19937(0)
        with aside:
            seed_globals(seed, self._bits)
            self._items = iter(source)
            self._leave()

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._quiet and self._begun:
            return next(self._items)
        self._begun = True
        with self._aside:
            self._arrive()
            try:
                return next(self._items)
            except StopIteration:
                self._ended = True  # some iterators begin anew when they are asked once more
                raise
            finally:
                self._leave()

    def skip(self, count: int) -> None:
        """Draw `count` items and drop them."""
        with self._aside:
            if self._quiet:
                deque(islice(self, count), maxlen=0)
            else:
                for _ in islice(self, count):
                    pass

    def _arrive(self) -> None:
        random.setstate(self._python)
        set_bit_generator(self._bits)  # forgets a Gaussian held back: the same way at every item
        torch.default_generator.set_state(self._torch)

    def _leave(self) -> None:
        self._python = random.getstate()
        self._torch = torch.default_generator.get_state()
