"""Every kind of data goes on at every boundary as if nothing had happened."""

import random
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from outlive.errors import ConfigError
from train.loop_lives import Life, Noisy, check, unbroken

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


@pytest.mark.parametrize("kind", MAPS)
def test_a_loader_goes_on_at_every_boundary(kind: str) -> None:
    """Without workers: the same batches, augmentations and global generators at every boundary."""
    check(two_epochs(MAPS[kind]))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_data_goes_on_at_every_boundary(kind: str) -> None:
    """Iterable data sets, loaders of another kind, lists, functions: as exact as they can be."""
    check(two_epochs(OTHERS[kind]))


def test_an_infinite_sampler_is_left_and_found_again() -> None:
    """The order has no end; the loop is left by break, and the next epoch begins another."""

    def script(life: Life) -> None:
        data = Noisy()
        loader = DataLoader(data, batch_size=2, sampler=Lazy(data))
        for epoch in life.epochs(2):
            for batch in life.batches(loader):
                if life.steps == 4 * epoch + 4:
                    break
                life.step(batch)

    check(script)


def test_set_epoch_is_the_scripts() -> None:
    """What the script sets before a loop counts, and not what an earlier life left there."""

    def script(life: Life) -> None:
        data = Noisy()
        sampler: DistributedSampler[Tensor] = DistributedSampler(data, 2, 1)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
        for epoch in life.epochs(3):
            sampler.set_epoch(epoch)
            for batch in life.batches(loader):
                life.step(batch)

    check(script)


def test_a_generator_that_the_script_seeds_each_epoch_is_the_scripts() -> None:
    """The same for a generator."""

    def script(life: Life) -> None:
        rng = generator(0)
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True, generator=rng)
        for epoch in life.epochs(3):
            rng.manual_seed(100 + epoch)
            for batch in life.batches(loader):
                life.step(batch)

    check(script)


def test_a_setting_of_a_sampler_may_change_between_lives() -> None:
    """A number that a sampler never changes is taken from the script, not from the checkpoint."""
    sampler = Counting(Noisy())

    def script(life: Life) -> None:
        loader = DataLoader(Noisy(), batch_size=4, sampler=sampler)
        for batch in life.batches(loader):
            life.step(batch)

    whole = unbroken(script)
    sampler = Counting(Noisy())
    sampler.window = 9
    Life(whole.saved[0]).run(script)
    assert (1, 9) == (sampler.epoch, sampler.window)


def test_no_data_is_read_again() -> None:
    """To go on after two of three batches, only the third is read."""
    data = Noisy(12)

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(data, batch_size=4, shuffle=True)):
            life.step(batch)

    whole = unbroken(script)
    data.reads = 0
    Life(whole.saved[1]).run(script)
    assert data.reads == 4


def test_a_stateful_stream_reads_nothing_again() -> None:
    """An iterable data set with a state_dict is set to its place; another is read again, and that said."""
    data = StatefulStream()

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(data, batch_size=2)):
            life.step(batch)

    whole = unbroken(script)
    data = StatefulStream()
    assert Life(whole.saved[2]).run(script).said == []
    assert data.reads == 1

    streams = unbroken(two_epochs(OTHERS["stream"]))
    assert Life(streams.saved[2]).run(two_epochs(OTHERS["stream"])).said == [
        "reading 2 batches of Stream by 3 with 0 workers again, to find where the run was"
    ]


def test_the_users_loader_is_not_touched() -> None:
    """Its attributes stay as they were, and it can be iterated beside."""
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
    before = dict(vars(loader))
    unbroken(lambda life: life.step(*life.batches(loader)))
    assert dict(vars(loader)) == before
    assert len(list(loader)) == 3


def test_random_data_does_not_disturb_the_training() -> None:
    """The global generators stand where they do with data that draws nothing: a loop draws one number."""

    class Still(Noisy):
        def __getitem__(self, index: int) -> Tensor:
            return torch.tensor([index])

    def rngs(data: Noisy) -> list[str]:
        def script(life: Life) -> None:
            loader = DataLoader(
                data, batch_size=3, sampler=Lazy(data, 9) if data.size == 10 else SequentialSampler(data)
            )
            for _ in life.batches(loader):
                life.step()

        return unbroken(script).lines

    assert rngs(Noisy()) == rngs(Still(9))


def test_a_data_sets_own_generator_stays_where_it_is() -> None:
    """It may serve the training as well; and with workers it would not advance here either."""
    data = OwnNoise()
    before = repr(data.rng.bit_generator.state)
    unbroken(lambda life: life.step(*life.batches(DataLoader(data, batch_size=2))))
    assert before == repr(data.rng.bit_generator.state)


def test_two_batches_never_get_the_same_random_numbers() -> None:
    """Each batch of each epoch is augmented in its own way."""
    seen: list[float] = []

    def script(life: Life) -> None:
        loader = DataLoader(Noisy(6), batch_size=2)
        for _ in life.epochs(3):
            for batch in life.batches(loader):
                seen.extend(batch[:, 1].tolist())

    unbroken(script)
    assert len(set(seen)) == 18


def test_one_shot_iterators_are_refused() -> None:
    """A later life could not go on in them, so the script learns it at once, and what to do."""
    life = Life()
    with pytest.raises(ConfigError, match="only once") as refused:
        life.batches(batch for batch in [1, 2])
    assert "lambda" in refused.value.hint
    with pytest.raises(ConfigError, match="can't be iterated"):
        life.batches(7)


def test_out_of_order_workers_are_put_in_order() -> None:
    """Which batches were seen must not depend on speed; the user is told."""
    loader = DataLoader(Noisy(), batch_size=4)
    loader.in_order = False
    life = unbroken(lambda life: life.step(*life.batches(loader)))
    assert life.said == ["in_order=False is not kept: the batches would depend on which worker is faster"]


def test_changed_data_is_said() -> None:
    """A data set of another size has another order: the run goes on, and says so."""
    size = 10

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(Noisy(size), batch_size=4)):
            life.step(batch)

    whole = unbroken(script)
    size = 12
    assert Life(whole.saved[0]).run(script).said == [
        "the data has changed, so its order has: Noisy[10] by BatchSampler(SequentialSampler, 4) is "
        "Noisy[12] by BatchSampler(SequentialSampler, 4) now"
    ]
