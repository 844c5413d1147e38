"""Where the batches of one loop come from, and how the same loop is opened again in the middle.

| handed over | how a later life goes on after k batches | exact |
|---|---|---|
| DataLoader | draws the order again, drops k index batches, reads no data | for any number of workers |
| DataLoader, iterable data set | reads k batches again and drops them | for the same number of workers |
| the same with `state_dict`, no workers | the data set loads its state | as its state is |
| a loader with `state_dict` | it loads its state | as its state is |
| a sequence of batches | by index | yes |
| other iterables, functions that make one | reads k batches again and drops them | if it reads the same |

Every batch made in this process is made with random numbers of its own, and so is every batch of a map-style
data set, wherever it is made. In the workers of an iterable data set the numbers begin anew with each loop.

Not exact are samplers that look at the training, data sets that change as they are read, an iterable data
set's own generators in workers that persist, and a device's random numbers drawn in workers.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, IterableDataset

from outlive.errors import ConfigError
from outlive.train import generators
from outlive.train.carry import Carry, digest, holders_of, is_stateful
from outlive.train.loader import Kept, can_rebuild, is_quiet, order_of
from outlive.train.randomness import Aside, Private, mix, seed_globals
from outlive.train.worker import SeededDataset, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What all feeds of a run share."""

    aside: Aside
    workers: Workers
    kept: Kept
    say: Callable[[str], None]


class Feed(ABC, Iterator[Any]):
    """The batches of one loop. Opened at any position, it gives what it would have given from there."""

    def __init__(self, data: Any, tools: Tools, *, label: str, holders: dict[str, Any]) -> None:
        self.data = data
        self.label = label
        self.carry = Carry(holders)
        self._tools = tools
        self._seed = 0
        self._number = 0

    def open(self, seed: int, done: int, place: Any) -> None:
        """Begin after `done` batches; `place` is what `place` returned there."""
        self._seed = seed
        with self._tools.aside:
            seed_globals(mix(seed, "start"), self._tools.aside.bits)
            self._open(done, place)

    def __next__(self) -> Any:
        with self._tools.aside:
            seed_globals(mix(self._seed, self._number), self._tools.aside.bits)
            batch = self._next()
        self._number += 1
        return batch

    @abstractmethod
    def _open(self, done: int, place: Any) -> None: ...

    @abstractmethod
    def _next(self) -> Any: ...

    def place(self) -> Any:
        """The position as the data itself states it, after the batches that were given; or None."""
        return None

    def close(self, *, settle: int | None = None) -> None:
        """End. With `settle`, the order's generators are left as they are after that many batches."""

    def length(self) -> int:
        """How many batches the whole loop has. TypeError if that is not known."""
        return len(self.data)

    def _drop(self, count: int) -> None:
        if count:
            self._tools.say(f"reading {count} batches of {self.label} again, to find where the run was")
        for _ in range(count):
            if next(self, self) is self:
                break


class MapFeed(Feed):
    """A DataLoader over a map-style data set."""

    data: DataLoader[Any]

    def __init__(self, loader: DataLoader[Any], tools: Tools) -> None:
        order = type(order_of(loader)).__name__
        inner = getattr(order_of(loader), "sampler", None)
        if inner is not None:
            order += f"({type(inner).__name__}, {getattr(loader.batch_sampler, 'batch_size', '?')})"
        label = f"{_name(loader.dataset)} by {order}"
        super().__init__(loader, tools, label=label, holders=holders_of(loader))
        if not getattr(loader, "in_order", True):
            tools.say("in_order=False is not kept: the batches would depend on which worker is faster")

    def _open(self, done: int, place: Any) -> None:
        self._began = self.carry.capture()
        self._rebuilt = self._tools.kept.take(self.data)
        self._rebuilt.indices.begin(self._ordered(done), self._seed, done)
        self._rebuilt.open(self._seed, self._tools.workers)

    def _ordered(self, done: int) -> Private:
        order = order_of(self.data)
        drawn = Private(order, mix(self._seed, "order"), aside=self._tools.aside, quiet=is_quiet(order))
        drawn.skip(done)
        return drawn

    def __next__(self) -> Any:
        if self.data.num_workers:
            return self._rebuilt.next()
        with self._tools.aside:
            return self._next()

    def _next(self) -> Any:
        own = self._rebuilt.dataset.own() if isinstance(self._rebuilt.dataset, SeededDataset) else []
        kept = [generators.capture(generator) for generator in own]
        try:
            return self._rebuilt.next()
        finally:  # they may serve others too, and with workers they would not advance here either
            for generator, state in zip(own, kept, strict=True):
                generators.put(generator, state)

    def close(self, *, settle: int | None = None) -> None:
        self._rebuilt.close(self._tools.workers)
        ahead = settle is not None and self._rebuilt.indices.drawn > settle
        if ahead and settle is not None and digest(self.carry.capture()) != digest(self._began):
            self.carry.put(self._began)
            self._ordered(settle)


class StreamFeed(Feed):
    """A DataLoader over an iterable data set."""

    data: DataLoader[Any]

    def __init__(self, loader: DataLoader[Any], tools: Tools) -> None:
        label = f"{_name(loader.dataset)} by {loader.batch_size} with {loader.num_workers} workers"
        holders = {**holders_of(loader), "dataset": loader.dataset}
        super().__init__(loader, tools, label=label, holders=holders)
        self._states = not loader.num_workers and is_stateful(loader.dataset)

    def _open(self, done: int, place: Any) -> None:
        self._rebuilt = self._tools.kept.take(self.data)
        loads = self._states and place is not None
        self._over = False
        if loads:
            self._over = place["ended"]
            self.data.dataset.load_state_dict(place["state"])  # type: ignore[attr-defined]
        self._number = done if loads else 0
        self._rebuilt.open(self._seed, self._tools.workers)
        if not loads:
            self._drop(done)

    def _next(self) -> Any:
        if self._over:
            raise StopIteration
        return self._rebuilt.next()

    def place(self) -> Any:
        if not self._states:
            return None
        ended = self._over or getattr(self._rebuilt.dataset, "ended", False)
        return {"state": copy.deepcopy(self.data.dataset.state_dict()), "ended": ended}  # type: ignore[attr-defined]

    def close(self, *, settle: int | None = None) -> None:
        self._rebuilt.close(self._tools.workers)


class ReplayFeed(Feed):
    """Any iterable, or a function that makes one; a loader's own state if it has one."""

    def __init__(self, data: Any, tools: Tools) -> None:
        holders = holders_of(data) if isinstance(data, DataLoader) else {"data": data}
        super().__init__(data, tools, label=_name(data), holders=holders)
        self._states = all(callable(getattr(data, name, None)) for name in ("state_dict", "load_state_dict"))
        self._items: Iterator[Any] | None = None

    def _open(self, done: int, place: Any) -> None:
        loads = self._states and place is not None
        over = loads and self._is_all(done)
        if over and isinstance(self.data, DataLoader):
            self.carry.put(place["order"])  # its state is an iterator's, and would be the next one's
        elif loads:
            self.data.load_state_dict(place["state"])
        if over:
            return  # iterating might begin the next pass
        made = self.data if hasattr(self.data, "__iter__") else self.data()
        self._number = done if loads else 0
        self._items = self._tools.workers.open(made)
        self._started = False
        if not loads:
            self._drop(done)

    def _is_all(self, done: int) -> bool:
        try:
            return done >= self.length()
        except TypeError:
            return False

    def _next(self) -> Any:
        if self._items is None:
            raise StopIteration
        if self._started:
            return next(self._items)
        self._started = True
        with self._tools.workers.starting(self.data):  # a loader that is a generator starts them here
            return next(self._items)

    def place(self) -> Any:
        if not self._states:
            return None
        try:
            return {"state": copy.deepcopy(self.data.state_dict()), "order": self.carry.capture()}
        except AttributeError:  # wrappers that have the method, but whose loader inside has not
            return None

    def close(self, *, settle: int | None = None) -> None:
        self._items = None


class SequenceFeed(Feed):
    """A list of batches, or anything else with a length and an index."""

    def __init__(self, data: Any, tools: Tools) -> None:
        super().__init__(data, tools, label=_name(data), holders={})

    def _open(self, done: int, place: Any) -> None:
        self._number = done

    def _next(self) -> Any:
        if self._number >= len(self.data):
            raise StopIteration
        return self.data[self._number]


def feed_for(data: Any, tools: Tools) -> Feed:
    """The way to iterate `data` so that a later life can go on in the middle."""
    if can_rebuild(data):
        return StreamFeed(data, tools) if isinstance(data.dataset, IterableDataset) else MapFeed(data, tools)
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, (Sequence, torch.Tensor, numpy.ndarray)) or (
        indexed and not hasattr(type(data), "__iter__")
    ):
        return SequenceFeed(data, tools)
    if not hasattr(data, "__iter__") and not callable(data):
        raise ConfigError(
            f"batches() was given a {type(data).__name__}, which can't be iterated",
            hint="give it a DataLoader, a list of batches, another iterable, or a function that returns one",
        )
    once = isinstance(data, Iterator) and not hasattr(data, "__len__") and not hasattr(data, "state_dict")
    if once:
        raise ConfigError(
            f"batches() was given a {type(data).__name__}: it can be read only once, and by no later life",
            hint="give it a function that makes one: run.batches(lambda: read(path))",
        )
    return ReplayFeed(data, tools)


def _name(data: Any) -> str:
    try:
        size = f"[{len(data)}]"
    except (TypeError, NotImplementedError):
        size = ""
    return getattr(data, "__name__", type(data).__name__) + size
