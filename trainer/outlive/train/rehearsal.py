"""The training's part in ``outlive rehearse``: keep the diary, save and stop where the orders say.

A rehearsed training takes the same path as any other: the orders only ask for what an agent, a signal or the
script itself may ask for.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from torch import Tensor

from outlive.staging.control import W_SERIAL
from outlive.staging.rehearsal import STATE_BYTES, Entry, Orders, leaves
from outlive.train.around import Around, batch_digest, norm, tensor_digest
from outlive.train.boundary import Stand, Want
from outlive.train.layout import Layout
from outlive.train.requests import Requests
from outlive.train.saving import Saving, say
from outlive.train.snapshot import plan
from outlive.train.stop import Signals
from outlive.train.tracked import Tracked

HOLD_SECONDS = 300.0
_POLL_SECONDS = 0.002
_AT_LEAST = 2
"""Steps from the save on the way to the stop, where both go by the clock: the reclaim comes in between."""


class Witness:
    """Stands at every boundary of one life."""

    def __init__(
        self,
        orders: Orders,
        *,
        capture: Callable[[], Mapping[str, Any]],
        tracked: Tracked,
        saving: Saving,
        requests: Requests,
        signals: Signals,
    ) -> None:
        self._orders = orders
        self._capture = capture
        self._tracked = tracked
        self._saving = saving
        self._requests = requests
        self._signals = signals
        self._diary = open(orders.diary, "a", encoding="utf-8")  # noqa: SIM115, PTH123 - as long as the life
        self._layout: Layout | None = None
        self._names: tuple[str, ...] | None = None
        self._batches: list[str] = []
        self._begun = False
        self._began_at: float | None = None
        self._saved_at: int | None = None

    def close(self) -> None:
        self._diary.close()

    def batches(self, batches: Iterator[Any]) -> "Watched":
        """The same batches, seen on their way."""
        return Watched(batches, self, data=True)

    def epochs(self, epochs: Iterator[int]) -> "Watched":
        """The same epochs: where the first one begins, the loop (re)starts."""
        return Watched(epochs, self, data=False)

    def fetching(self, frame: FrameType | None) -> None:
        """A batch or an epoch is about to begin; before the first batch the loop (re)starts."""
        if not self._begun:
            self._write(Entry(step=-1, around=Around(self._known()).of(frame)))

    def fetched(self, batch: Any) -> None:
        self._begun = True
        self._batches.append(batch_digest(batch))

    def boundary(self, stand: Stand, frame: FrameType | None) -> None:
        """Write down how everything stands, and ask for what the orders say."""
        self._begun = True
        self._write(self._entry(stand, frame))
        self._batches = []
        self._obey(stand.step)
        if self._orders.hold_from and stand.step >= self._orders.hold_from:
            self._hold()

    def _entry(self, stand: Stand, frame: FrameType | None) -> Entry:
        snapshot = plan(self._capture(), self._layout)
        self._layout = snapshot.layout
        entries = self._layout.entries
        names = tuple(entry.path for entry in entries)
        told = None if names == self._names else names
        self._names = names
        digests: tuple[str, ...] = ()
        norms: tuple[str, ...] = ()
        if self._layout.size <= STATE_BYTES:
            copied = [entries[i].offset for i in self._layout.copied]
            at = {
                offset: (tensor_digest(source), norm(source))
                for offset, source in zip(copied, snapshot.sources, strict=True)
            }
            seen = [at[entry.offset] if entry.bytes else ("", "") for entry in entries]
            digests, norms = tuple(each[0] for each in seen), tuple(each[1] for each in seen)
        return Entry(
            step=stand.step,
            epoch=stand.epoch,
            metrics=_numbers(stand.metrics),
            batches=tuple(self._batches),
            values=leaves(json.loads(snapshot.values)),
            names=told,
            tensors=digests,
            norms=norms,
            around=Around(self._known(snapshot.sources)).of(frame),
        )

    def _known(self, sources: tuple[Tensor, ...] = ()) -> set[int]:
        """What is saved anyway: the tensors by address, the objects by id."""
        tracked = self._tracked
        known = {source.data_ptr() for source in sources} | {id(self._saving), id(self)}
        for module in tracked.modules.values():
            known |= {id(each) for each in module.module.modules()}
            known |= {each.data_ptr() for each in (*module.module.parameters(), *module.module.buffers())}
        known |= {id(each.target) for each in tracked.objects.values()}
        return known | {id(each.optimizer) for each in tracked.optimizers.values()}

    def _obey(self, step: int) -> None:
        orders, now = self._orders, time.monotonic()
        if self._began_at is None:
            self._began_at = now
        passed = now - self._began_at
        if self._saved_at is None and _due(step, passed, orders.save_at, orders.save_after_seconds):
            self._saved_at = step
            self._requests.ask(Want(reason="hand"))
        early = orders.save_after_seconds and (self._saved_at is None or step < self._saved_at + _AT_LEAST)
        late = 0.0 if early else orders.stop_after_seconds
        if _due(step, passed, orders.stop_at, late):
            self._requests.ask(Want(reason="hand", stop=True))

    def _hold(self) -> None:
        """Wait at this boundary until somebody asks for something."""
        link = self._saving.link
        until = time.monotonic() + HOLD_SECONDS
        while link.page.words[W_SERIAL] == self._requests.heard and not self._told_to_stop():
            if time.monotonic() > until:
                say("nobody came to reclaim this machine; going on")
                return
            time.sleep(_POLL_SECONDS)

    def _told_to_stop(self) -> bool:
        link = self._saving.link
        gone = link.lost or link.refused is not None
        return gone or self._signals.received != 0 or self._requests.stopping

    def _write(self, entry: Entry) -> None:
        self._diary.write(entry.encode() + "\n")
        self._diary.flush()


class Watched(Iterator[Any]):
    """Batches, or epochs, that a witness sees."""

    def __init__(self, items: Any, witness: Witness, *, data: bool) -> None:
        self._items = items
        self._witness = witness
        self._data = data

    def __next__(self) -> Any:
        self._witness.fetching(sys._getframe(1))
        item = next(self._items)
        if self._data:
            self._witness.fetched(item)
        return item

    def __len__(self) -> int:
        return len(self._items)

    def close(self) -> None:
        self._items.close()


def _due(step: int, passed: float, at: int, after_seconds: float) -> bool:
    return bool((at and step >= at) or (after_seconds and passed >= after_seconds))


def _numbers(metrics: Mapping[str, Any]) -> dict[str, str]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value).hex()
        except (TypeError, ValueError, RuntimeError):  # several elements, text, or a freed graph
            continue
    return numbers
