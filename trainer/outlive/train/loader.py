"""A DataLoader of our own over the user's parts; theirs is never touched.

It differs from theirs in what the order is drawn from and in whose random numbers a batch is made with.
"""

import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
)

from outlive.train.carry import TORCH_SAMPLERS
from outlive.train.randomness import mix
from outlive.train.worker import SeededDataset, SeededStream, Shield, Workers


class Indices(Iterator[tuple[int, Any]]):
    """What the batches of a loop are: (seed, indices) each. torch asks for an iterator of it twice."""

    def __init__(self) -> None:
        self.begin(iter(()), 0, 0)

    def begin(self, order: Iterator[Any], seed: int, number: int) -> None:
        """Go on from `order`, whose next item is batch `number` of the loop with this seed."""
        self._order = order
        self._seed = seed
        self.drawn = number

    def __next__(self) -> tuple[int, Any]:
        index = next(self._order)
        self.drawn += 1
        return mix(self._seed, self.drawn - 1), index


class Rebuilt:
    """The user's loader built anew, for one loop; or for one after another, if its workers are to persist."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.indices = Indices()
        self.dataset: SeededDataset | SeededStream
        self._generator = torch.Generator()
        self._persistent = loader.persistent_workers
        self._batches: Iterator[Any] | None = None
        order: dict[str, Any]
        if isinstance(loader.dataset, IterableDataset):
            self.dataset = SeededStream(loader.dataset)
            order = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        else:
            self.dataset = SeededDataset(loader.dataset, loader.collate_fn)
            order = {"batch_size": None, "sampler": self.indices}
            if loader.batch_sampler is not None:
                order = {"batch_sampler": self.indices}
        if loader.pin_memory_device:  # deprecated: its mere mention warns
            order["pin_memory_device"] = loader.pin_memory_device
        with _warned_already():
            self._loader: DataLoader[Any] = DataLoader(
                self.dataset,
                num_workers=loader.num_workers,
                collate_fn=loader.collate_fn,
                pin_memory=loader.pin_memory,
                timeout=loader.timeout,
                worker_init_fn=Shield(loader.worker_init_fn),
                multiprocessing_context=loader.multiprocessing_context,
                generator=self._generator,
                prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
                persistent_workers=loader.persistent_workers,
                **order,
            )

    @property
    def busy(self) -> bool:
        """Whether a loop is going on."""
        return self._batches is not None

    def open(self, seed: int, workers: Workers) -> None:
        """Start, or start again, with worker seeds made from this one."""
        self._generator.manual_seed(mix(seed, "workers"))
        if isinstance(self.dataset, SeededStream):
            self.dataset.seed.value = mix(seed, "stream")
        with _warned_already():
            self._batches = workers.open(self._loader)

    def next(self) -> Any:
        """The next batch."""
        if self._batches is None:
            raise StopIteration
        return next(self._batches)

    def close(self, workers: Workers) -> None:
        """End the loop; its workers too, unless they are to persist."""
        batches, self._batches = self._batches, None
        if not self._persistent:
            workers.end(batches)


class Kept:
    """The loaders built anew whose workers persist, for as long as the user's loader is there."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[DataLoader[Any], Rebuilt] = weakref.WeakKeyDictionary()

    def take(self, loader: DataLoader[Any]) -> Rebuilt:
        """One for this loader that is not busy."""
        if not loader.persistent_workers:
            return Rebuilt(loader)
        kept = self._of.get(loader)
        if kept is not None and not kept.busy:
            return kept
        rebuilt = Rebuilt(loader)
        if kept is None:
            self._of[loader] = rebuilt
        return rebuilt

    def clear(self) -> None:
        """Forget them: their workers are gone."""
        self._of.clear()


def can_rebuild(loader: object) -> bool:
    """Whether a DataLoader's iteration is torch's own, so that its parts are all there is to it."""
    kind: Any = type(loader)
    return (
        isinstance(loader, DataLoader)
        and kind.__iter__ is DataLoader.__iter__
        and kind._get_iterator is DataLoader._get_iterator
        and not isinstance(loader.dataset, (IterDataPipe, MapDataPipe))
    )


def order_of(loader: DataLoader[Any]) -> Iterable[Any]:
    """What the loader takes its indices from."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def is_quiet(order: Any) -> bool:
    """Whether an order draws from the global generators before its first item only, as torch's own do."""
    if type(order) is BatchSampler:
        order = order.sampler
    return (
        type(order) in (DistributedSampler, *TORCH_SAMPLERS)
        and getattr(order, "generator", None) is not torch.default_generator
    )


class _warned_already(warnings.catch_warnings):
    """The user's own loader has said already that it has more workers than the machine has cores."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.filterwarnings("ignore", "This DataLoader will create")
