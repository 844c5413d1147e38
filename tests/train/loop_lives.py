"""Runs a small training script once without a break, and again in lives that begin at each of its boundaries.

A script is a function of a `Life`. What it draws, what it gets and where the global generators stand is
written down at each boundary; the lives after a break must write down what the unbroken one did.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset

from outlive.train import rng, values, values_read
from outlive.train.loops import Loops

Script: TypeAlias = "Callable[[Life], None]"
Lines: TypeAlias = list[str]


class Broken(BaseException):
    """The machine is gone."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint would hold."""

    loops: bytes
    rng: dict[str, Any]
    steps: int
    lines: int
    """How many lines the life had written by then."""


class Life:
    """One life of a script. `step` is the boundary."""

    def __init__(
        self, saved: Saved | None = None, *, break_after: int | None = None, workers: int = 0
    ) -> None:
        self.workers = workers
        self.lines: Lines = []
        self.saved: list[Saved] = []
        self.said: list[str] = []
        self.continued = 0
        self.steps = 0 if saved is None else saved.steps
        self._saved = saved
        self._break_after = break_after
        self._boundaries = 0
        self.loops = Loops(on_continue=self._continue, on_boundary=self._boundary, say=self.said.append)
        seed_all(1 if saved is None else 98765)
        if saved is not None:
            self.loops.load(values_read.decode(values_read.load(saved.loops), []))

    def epochs(self, count: int) -> Iterator[int]:
        """As `run.epochs`."""
        return self.loops.epochs(count)

    def batches(self, data: Any) -> Iterator[Any]:
        """As `run.batches`."""
        return self.loops.batches(data)

    def step(self, *batch: Any) -> None:
        """Draw as a training step does, write down all that is known, save; and stop here if it is time."""
        drawn = (random.random(), numpy.random.standard_normal(), torch.rand(()).item())
        self.steps += 1
        self.lines.append(f"{text(batch)} {drawn} {rng_digest()}")
        self._boundary()

    def note(self, *what: Any) -> None:
        """Write something down that is no boundary."""
        self.lines.append(text(what))

    def run(self, script: Script) -> "Life":
        """Run it to its end, or to the break."""
        try:
            script(self)
        except Broken:
            pass
        finally:
            self.loops.close()
        return self

    def _boundary(self) -> None:
        self.saved.append(Saved(self.state(), rng.capture(), self.steps, len(self.lines)))
        self._boundaries += 1
        if self._boundaries == self._break_after:
            raise Broken

    def _state(self) -> bytes:
        return plain(self.loops.state())

    def state(self) -> bytes:
        """As a checkpoint holds it."""
        return plain(self.loops.state())

    def _continue(self) -> None:
        assert self._saved is not None
        self.continued += 1
        rng.restore(self._saved.rng)


def unbroken(script: Script, *, workers: int = 0) -> Life:
    """The whole script in one life."""
    return Life(workers=workers).run(script)


def check(
    script: Script, *, workers: int = 0, later: int | None = None, places: Iterable[int] | None = None
) -> Life:
    """Break the script at each boundary, or at `places`: a life with `later` workers must write the rest."""
    whole = unbroken(script, workers=workers)
    assert whole.lines
    for place in range(len(whole.saved)) if places is None else places:
        next_life = Life(whole.saved[place], workers=workers if later is None else later).run(script)
        assert whole.lines[whole.saved[place].lines :] == next_life.lines, place
        assert next_life.continued == 1, place
    return whole


def plain(state: Any) -> bytes:
    """The state as a checkpoint holds it; refuses what no checkpoint can hold."""
    encoder = values.Encoder()
    document = encoder.encode(state, "loops")
    encoder.check()
    return values.dump(document)


def seed_all(seed: int) -> None:
    """As a script does at its beginning. One Gaussian is left over in numpy's and python's generators."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    numpy.random.standard_normal()
    random.gauss(0, 1)


def rng_digest() -> str:
    """Where the global generators stand."""
    state = rng.capture()
    numbers = numpy.random.get_state(legacy=False)
    rest = [
        numbers["has_gauss"],
        numbers["gauss"],
        numbers["state"]["pos"],
        numbers["state"]["key"].tobytes(),
    ]
    return hashlib.sha256(repr([state["python"], rest, state["torch"]]).encode()).hexdigest()[:16]


def text(value: Any) -> str:
    """Exactly what a batch holds."""
    if isinstance(value, Tensor):
        return str(value.tolist())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text(each) for each in value) + "]"
    return repr(value)


class Noisy(Dataset[Tensor]):
    """Gives the index and what each of the three global generators says."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.reads = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        self.reads += 1
        drawn = [index, random.random(), numpy.random.standard_normal(), torch.rand(()).item()]
        return torch.tensor(drawn, dtype=torch.float64)
