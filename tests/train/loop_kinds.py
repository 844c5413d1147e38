"""Every kind of data that a script may hand to ``run.batches``."""

import random
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from train.loop_lives import Life, Noisy

Make = Callable[[], Any]


def two_epochs(make: Make) -> Callable[[Life], None]:
    """The common script."""

    def script(life: Life) -> None:
        data = make()
        for epoch in life.epochs(2):
            for batch in life.batches(data):
                life.step(epoch, batch)

    return script


def generator(seed: int = 3) -> torch.Generator:
    """One that a user made."""
    return torch.Generator().manual_seed(seed)


class Lazy(Sampler[int]):
    """Draws each index when it is asked for, from all three global generators; has no end."""

    def __init__(self, data: Sized, length: int | None = None) -> None:
        self.data = data
        self.length = length

    def __iter__(self) -> Iterator[int]:
        count = 0
        while self.length is None or count < self.length:
            drawn = random.random() + numpy.random.standard_normal() + torch.rand(()).item()
            yield int(drawn * 1000) % len(self.data)
            count += 1


class Counting(Sampler[int]):
    """Counts its epochs by itself, and orders by them."""

    def __init__(self, data: Sized) -> None:
        self.data = data
        self.epoch = 0
        self.window = 5

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        order = list(range(len(self.data)))
        random.Random(self.epoch).shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return len(self.data)


class Stateful(Sampler[int]):
    """Says its state itself, and hides it from everyone else."""

    __slots__ = ("_data", "_rng")

    def __init__(self, data: Sized) -> None:
        self._data = data
        self._rng = [random.Random(5)]

    def __iter__(self) -> Iterator[int]:
        for _ in range(8):
            yield self._rng[0].randrange(len(self._data))

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        return {"rng": self._rng[0].getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Its state back."""
        self._rng[0].setstate(state["rng"])


class Pairs(Sampler[list[int]]):
    """A batch sampler of the user's own, with a numpy generator of its own."""

    def __init__(self, data: Sized) -> None:
        self.data = data
        self.rng = numpy.random.default_rng(7)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(4):
            yield self.rng.choice(len(self.data), 2, replace=False).tolist()


class OwnNoise(Dataset[Tensor]):
    """Draws from generators of its own, one of them deep inside."""

    def __init__(self) -> None:
        self.rng = numpy.random.default_rng(1)
        self.transforms = [partial(self.shift, numpy.random.RandomState(2))]
        self.more: dict[str, Any] = {"python": random.Random(3), "torch": generator(4)}

    def shift(self, noise: numpy.random.RandomState, value: float) -> float:
        """An augmentation."""
        return value + noise.standard_normal()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        value = self.transforms[0](index + float(self.rng.standard_normal()))
        drawn = torch.rand((), generator=self.more["torch"]).item()
        return torch.tensor([index, value, self.more["python"].random(), drawn], dtype=torch.float64)


class Many(Noisy):
    """Reads a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        shift = torch.rand(())
        return [self[index] + shift for index in indices]


def noisy_collate(batch: list[Tensor]) -> Tensor:
    """Draws, too."""
    return torch.stack(batch) + torch.rand(()) + random.random()


class Stream(IterableDataset[Tensor]):
    """Shuffles in a buffer with the global generators, and has one of its own that goes on over epochs."""

    def __init__(self) -> None:
        self.rng = random.Random(11)
        self.passes = 0

    def __iter__(self) -> Iterator[Tensor]:
        self.passes += 1
        buffer: list[int] = []
        for item in range(11):
            buffer.append(item)
            if len(buffer) == 4:
                yield self._item(buffer.pop(random.randrange(4)))
        for item in buffer:
            yield self._item(item)

    def _item(self, item: int) -> Tensor:
        return torch.tensor(
            [item, self.passes, self.rng.random(), torch.rand(()).item()], dtype=torch.float64
        )


class StatefulStream(IterableDataset[Tensor]):
    """Knows where it is, and can go on there without reading anything again."""

    def __init__(self) -> None:
        self.position = 0
        self.reads = 0

    def __iter__(self) -> Iterator[Tensor]:
        while self.position < 7:
            self.position += 1
            self.reads += 1
            yield torch.tensor([self.position, random.random()], dtype=torch.float64)
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        """Its position."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Its position back."""
        self.position = state["position"]


class StatefulLoader:
    """Shuffles, and says where it is: the rest of its order."""

    def __init__(self) -> None:
        self.rest: list[int] = []

    def __iter__(self) -> Iterator[Tensor]:
        if not self.rest:
            self.rest = torch.randperm(5).tolist()
        while self.rest:
            yield torch.tensor([self.rest.pop(), random.random()])

    def __len__(self) -> int:
        return 5

    def state_dict(self) -> dict[str, list[int]]:
        """What is left."""
        return {"rest": self.rest}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """What is left."""
        self.rest = list(state["rest"])


class OwnLoader(DataLoader[Any]):
    """Iterates in its own way."""

    def __iter__(self) -> Any:
        shift = torch.rand(())
        for batch in super().__iter__():
            yield batch + shift + random.random()


def of(data: Any, **arguments: Any) -> Make:
    """A loader made anew in each life, and its data too; samplers may be functions of the data."""

    def make() -> DataLoader[Any]:
        made = data()
        ready = {
            name: value(made) if name.endswith("sampler") else value for name, value in arguments.items()
        }
        if ready.get("generator") is generator:
            ready["generator"] = generator()
        return DataLoader(made, **ready)

    return make


MAPS: dict[str, Make] = {
    "in order": of(Noisy, batch_size=4),
    "shuffled": of(Noisy, batch_size=4, shuffle=True),
    "drop_last": of(Noisy, batch_size=4, shuffle=True, drop_last=True),
    "no batches": of(lambda: Noisy(4), batch_size=None, shuffle=True),
    "generator": of(Noisy, batch_size=4, shuffle=True, generator=generator),
    "lazy sampler": of(Noisy, batch_size=3, sampler=lambda data: Lazy(data, 7)),
    "with replacement": of(Noisy, batch_size=4, sampler=lambda d: RandomSampler(d, True, 9)),
    "own generator, drawn as it goes": of(
        Noisy, batch_size=8, sampler=lambda d: RandomSampler(d, True, 70, generator=generator())
    ),
    "subset": of(Noisy, batch_size=2, sampler=lambda d: SubsetRandomSampler(range(5))),
    "weighted": of(Noisy, batch_size=2, sampler=lambda d: WeightedRandomSampler([1.0] * 10, 5)),
    "counts its epochs": of(Noisy, batch_size=4, sampler=Counting),
    "stateful sampler": of(Noisy, batch_size=3, sampler=Stateful),
    "own batch sampler": of(Noisy, batch_sampler=Pairs),
    "batches of a lazy sampler": of(Noisy, batch_sampler=lambda d: BatchSampler(Lazy(d, 7), 2, True)),
    "list as sampler": of(Noisy, batch_size=2, sampler=lambda d: [3, 1, 2, 9, 0]),
    "collate": of(Noisy, batch_size=4, collate_fn=noisy_collate),
    "own noise": of(OwnNoise, batch_size=2, shuffle=True),
    "own noise inside": of(lambda: ConcatDataset([Subset(OwnNoise(), [5, 3]), OwnNoise()]), batch_size=3),
    "many at once": of(Many, batch_size=4, shuffle=True),
}
OTHERS: dict[str, Make] = {
    "stream": of(Stream, batch_size=3),
    "stream, drop_last": of(Stream, batch_size=3, drop_last=True),
    "stream, no batches": of(Stream, batch_size=None),
    "stateful stream": of(StatefulStream, batch_size=2),
    "stateful loader": StatefulLoader,
    "own loader": lambda: OwnLoader(Noisy(), batch_size=4, shuffle=True),
    "own loader, generator": lambda: OwnLoader(Noisy(), batch_size=4, shuffle=True, generator=generator()),
    "list": lambda: [torch.zeros(2), torch.ones(2), torch.full((2,), 2.0)],
    "tensor": lambda: torch.arange(6).view(3, 2),
    "data set as it is": lambda: Noisy(3),
    "function": lambda: lambda: (random.random() + item for item in range(3)),
    "dict": lambda: {"a": 1, "b": 2},
}
