"""What samplers remember from one epoch to the next is carried into the next life.

A sampler's order may come from a generator that the user made, from an epoch number, or from a counter of its
own. Their state is taken where a loop begins, so that its order can be made again, and where it ends, so that
the next epoch begins from there even if a later life runs it.
"""

import copy
import hashlib
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from outlive.train import generators

Values: TypeAlias = dict[str, Any]

# Their attributes are settings: nothing in them counts or advances.
TORCH_SAMPLERS = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
_SCALARS = (bool, int, float, str, type(None))
_DEPTH = 4


class Carry:
    """The places in some objects that decide an order: generators, numbers, whatever has a state_dict."""

    def __init__(self, holders: dict[str, Any]) -> None:
        self._holders = holders

    def capture(self) -> Values:
        """The value at every place there is."""
        values: Values = {}
        for name, holder in self._holders.items():
            if is_stateful(holder):
                values[f"{name}.state_dict()"] = copy.deepcopy(holder.state_dict())
                continue
            for attribute, value in _attributes(holder).items():
                if generators.is_generator(value):
                    values[f"{name}.{attribute}"] = {"generator": generators.capture(value)}
                elif type(value) in _SCALARS and _may_advance(holder, attribute):
                    values[f"{name}.{attribute}"] = value
        return values

    def put(self, values: Values) -> None:
        """Set the places that `values` names, as far as they are still there."""
        for path, value in values.items():
            name, _, attribute = path.partition(".")
            holder = self._holders.get(name)
            if holder is None:
                continue
            if attribute == "state_dict()":
                if is_stateful(holder):
                    holder.load_state_dict(copy.deepcopy(value))
            elif isinstance(value, dict):
                if generators.is_generator(here := _attributes(holder).get(attribute)):
                    generators.put(here, value["generator"])
            elif attribute in _attributes(holder):
                setattr(holder, attribute, value)


class Source:
    """One loader as the run knows it: its places when first seen, and as its last loop left them."""

    def __init__(self, data: str, first: dict[str, str], after: Values, *, renewed: bool = False) -> None:
        self.data = data
        self.first = first
        self.after = after
        self.renewed = renewed

    def start(self, values: Values) -> Values:
        """What a loop must put back to begin as it began. A number that never moved is a setting."""
        return {
            path: value
            for path, value in values.items()
            if type(value) not in _SCALARS or not self._untouched(path, value)
        }

    def leave(self, values: Values) -> None:
        """Note how a loop that has ended leaves the places that have moved."""
        self.after = {path: value for path, value in values.items() if not self._untouched(path, value)}

    def resume(self, here: Values, carry: Carry) -> None:
        """Put the places where the last loop left them, but for those that the script has set by now."""
        if not self.renewed:
            carry.put(
                {
                    path: self.after[path]
                    for path, value in here.items()
                    if path in self.after and self._untouched(path, value)
                }
            )

    def renew(self, here: Values) -> None:
        """Another loader takes this one's part. If it is as this was at first, it is made anew each time."""
        self.renewed = all(self._untouched(path, value) for path, value in here.items())

    def _untouched(self, path: str, value: Any) -> bool:
        return self.first.get(path) == digest(value)


class Sources:
    """Which loader of this life is which of the run's: by kind and size, in the order of their first use."""

    def __init__(self) -> None:
        self._known: list[Source] = []
        self._waiting: list[Source] = []
        self._seen: list[tuple[Callable[[], object], Source]] = []

    def of(self, owner: object, data: str, carry: Carry) -> Source:
        """The source of `owner`, which is put where its last loop left it when this life first meets it."""
        self._seen = [(ref, source) for ref, source in self._seen if ref() is not None]
        for ref, source in self._seen:
            if ref() is owner:
                return source
        here = carry.capture()
        taken = [source for _, source in self._seen]
        free = [source for source in self._known if source.data == data and source not in taken]
        if not free:
            source = Source(data, {path: digest(value) for path, value in here.items()}, {})
            self._known.append(source)
        else:
            source = free[0]
            if source in self._waiting:
                self._waiting.remove(source)
                source.resume(here, carry)
            else:
                source.renew(here)
        self._seen.append((_reference(owner), source))
        return source

    def state(self) -> list[Values]:
        """Plain values. A source of which nothing has moved needs no keeping."""
        return [
            {"data": source.data, "first": source.first, "after": source.after, "renewed": source.renewed}
            for source in self._known
            if source.after
        ]

    def load(self, saved: list[Values]) -> None:
        """Begin with the sources of an earlier life."""
        self._known = [
            Source(each["data"], dict(each["first"]), dict(each["after"]), renewed=each["renewed"])
            for each in saved
        ]
        self._waiting = list(self._known)
        self._seen = []


def holders_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The objects that decide a loader's order, by name."""
    holders: dict[str, Any] = {"loader": loader}
    level: list[tuple[str, Any]] = [("batch_sampler", loader.batch_sampler), ("sampler", loader.sampler)]
    for _ in range(_DEPTH):
        below: list[tuple[str, Any]] = []
        for name, holder in level:
            if hasattr(holder, "__dict__") and not any(holder is known for known in holders.values()):
                holders[name] = holder
                below += [
                    (f"{name}/{inner}", _attributes(holder).get(inner))
                    for inner in ("batch_sampler", "sampler")
                ]
        level = below
    return holders


def is_stateful(holder: Any) -> bool:
    """Whether it saves and loads a state of its own. A DataLoader's is about its iterator: see `data`."""
    return not isinstance(holder, DataLoader) and all(
        callable(getattr(holder, name, None)) for name in ("state_dict", "load_state_dict")
    )


def digest(value: Any) -> str:
    """Equal for equal values, tensors and arrays included."""
    hash_ = hashlib.blake2b(digest_size=12)
    _absorb(value, hash_.update)
    return hash_.hexdigest()


def _absorb(value: Any, update: Callable[[bytes], None]) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, numpy.ndarray):
        update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, dict):
        for key, inner in value.items():
            update(repr(key).encode())
            _absorb(inner, update)
    elif isinstance(value, (list, tuple)):
        update(f"[{len(value)}".encode())
        for inner in value:
            _absorb(inner, update)
    else:
        update(f"{value!r};".encode())


def _attributes(holder: Any) -> dict[str, Any]:
    return getattr(holder, "__dict__", {})


def _may_advance(holder: Any, attribute: str) -> bool:
    if type(holder) is DistributedSampler:
        return attribute == "epoch"
    return not isinstance(holder, DataLoader) and type(holder) not in (BatchSampler, *TORCH_SAMPLERS)


def _reference(owner: object) -> Callable[[], object]:
    try:
        return weakref.ref(owner)
    except TypeError:  # lists and the like
        return lambda: owner
