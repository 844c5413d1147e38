"""A snapshot between its boundary and the moment at which the agent gets it."""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outlive.staging.messages import SnapshotTaken
from outlive.train import environment
from outlive.train.arenas import Room
from outlive.train.beside import beside
from outlive.train.boundary import Stand, Want
from outlive.train.copying import Copying, copy
from outlive.train.hiding import Hiding, Way, path
from outlive.train.snapshot import Plan
from outlive.train.watch import Watch

LATE_SECONDS = 2.0
"""How long a finished copy waits for the training to come by, which may be in a long evaluation.

Far longer than any one change of a tensor takes, so that none is under way when torch's count is read.
"""


class Taking:
    """Copies what must be of the boundary at once, and the rest in a thread."""

    def __init__(
        self, plan: Plan, room: Room, *, want: Want, stand: Stand, ways: Sequence[Way], began: int
    ) -> None:
        self.plan, self.room, self.want = plan, room, want
        self._step, self._epoch, self._metrics = stand.step, stand.epoch, _numbers(stand.metrics)
        self.moves = plan.moves(room.windows)
        self.stall_ns = 0
        """What the training has lost by it so far."""
        self.versions: dict[int, int] = {}
        self._pid = os.getpid()
        self._over = threading.Event()
        self._beside = [i for i, way in enumerate(ways) if way is Way.BESIDE]
        self._compared = [i for i, way in enumerate(ways) if way is Way.COMPARED]
        hidden = self._beside + self._compared
        self._watch = Watch([plan.sources[i] for i in hidden], [self.moves[i] for i in hidden])
        self._copying = Copying(
            [self.moves[i] for i in self._beside], [self.moves[i] for i in self._compared]
        )
        copying = time.monotonic_ns()
        copy([self.moves[i] for i, way in enumerate(ways) if way is Way.AT_ONCE])
        now = time.monotonic_ns()
        self._at_once_ns = now - copying
        self.stall_ns = now - began

    def begin(self, *, when_late: Callable[[], None]) -> None:
        """Copy what is beside; `when_late` is called if it is done and nobody comes by to `finish`."""
        self._when_late = when_late
        beside(self._copy_beside, name="outlive-copy", give_up=self._give_up)

    @property
    def copied(self) -> bool:
        """Whether the last byte is in the image."""
        return self._copying.copied

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process, forked meanwhile, in which nothing is being copied."""
        return self._pid != os.getpid()

    @property
    def copy_ns(self) -> int:
        """What copying everything took, side by side with the training or not."""
        return self._at_once_ns + self._copying.nanoseconds

    def finish(self) -> None:
        """Wait for the last byte."""
        began = time.monotonic_ns()
        self._copying.finish()
        self._over.set()
        self.stall_ns += time.monotonic_ns() - began

    def verdict(self, hiding: Hiding) -> bool:
        """Whether everything is in the image as it was at the boundary; what is not is told to `hiding`."""
        hidden = self._beside + self._compared
        counted = [path(self.plan, hidden[i]) for i in self._watch.counted()]
        moved = [path(self.plan, self._compared[i]) for i in self._copying.unequal]
        exchanged = not counted and not moved and (self._watch.exchanged() or not self._copying.whole)
        if exchanged:
            hiding.lost([path(self.plan, i) for i in hidden], exchanged=True)
        elif counted:
            hiding.lost(counted, exchanged=False)
        elif moved:
            hiding.not_resting(moved)
        return not (exchanged or counted or moved)

    def packet(self) -> SnapshotTaken:
        """What the agent is told, once the last byte is copied."""
        layout = self.plan.layout
        return SnapshotTaken(
            number=self.room.number,
            arena=self.room.arena,
            step=self._step,
            epoch=self._epoch,
            reason=self.want.reason,
            bytes=layout.size,
            table=len(layout.table),
            values=len(self.plan.values),
            metrics=self._metrics,
            environment=environment.describe(),
            copy_seconds=self.copy_ns / 1e9,
            stall_seconds=self.stall_ns / 1e9,
            stop=self.want.stop,
        )

    def _give_up(self) -> None:
        self._copying.give_up()
        self._over.set()

    def _copy_beside(self) -> None:
        self._copying.work()
        if not self._over.wait(LATE_SECONDS):
            self._when_late()


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as numbers. Only here is a device waited for; what is no finite number is left out."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):  # several elements, text, or a freed graph
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers
