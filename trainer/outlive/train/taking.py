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
from outlive.train.boundary import Stand, Want
from outlive.train.copying import Copying, copy
from outlive.train.snapshot import Plan
from outlive.train.watch import Watch

LATE_SECONDS = 2.0
"""How long a finished copy waits for the training to come by, which may be in a long evaluation.

Far longer than any one change of a tensor takes, so that none is under way when torch's count is read.
"""


class Taking:
    """Copies what must be of the boundary at once, and the tensors that are `beside` in a thread."""

    def __init__(
        self, plan: Plan, room: Room, *, want: Want, stand: Stand, beside: Sequence[bool], began: int
    ) -> None:
        self.plan, self.room, self.want = plan, room, want
        self._step, self._epoch, self._metrics = stand.step, stand.epoch, _numbers(stand.metrics)
        self.moves = plan.moves(room.windows)
        self.stall_ns = 0
        """What the training has lost by it so far."""
        self._pid = os.getpid()
        self._over = threading.Event()
        hidden = [i for i, aside in enumerate(beside) if aside]
        self._paths = [plan.layout.entries[plan.layout.copied[i]].path for i in hidden]
        self._watch = Watch([plan.sources[i] for i in hidden], [self.moves[i] for i in hidden])
        self._beside = Copying([self.moves[i] for i in hidden])
        copying = time.monotonic_ns()
        copy([move for move, aside in zip(self.moves, beside, strict=True) if not aside])
        now = time.monotonic_ns()
        self._at_once_ns = now - copying
        self.stall_ns = now - began

    def begin(self, *, when_late: Callable[[], None]) -> None:
        """Copy what is beside; `when_late` is called if it is done and nobody comes by to `finish`."""
        self._when_late = when_late
        threading.Thread(target=self._copy_beside, name="outlive-copy", daemon=True).start()

    @property
    def beside(self) -> int:
        """How many tensors are copied beside the training."""
        return len(self._paths)

    @property
    def copied(self) -> bool:
        """Whether the last byte is in the image."""
        return self._beside.copied

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process, forked meanwhile, in which nothing is being copied."""
        return self._pid != os.getpid()

    @property
    def copy_ns(self) -> int:
        """What copying everything took, side by side with the training or not."""
        return self._at_once_ns + self._beside.nanoseconds

    def finish(self) -> None:
        """Wait for the last byte."""
        began = time.monotonic_ns()
        self._beside.finish()
        self._over.set()
        self.stall_ns += time.monotonic_ns() - began

    def changed(self) -> list[str]:
        """Which tensors may not be in the image as they were at the boundary; all of them, if unsure."""
        counted = self._watch.counted()
        if counted:
            return [self._paths[i] for i in counted]
        return self._paths if self._watch.exchanged() or not self._beside.whole else []

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

    def _copy_beside(self) -> None:
        self._beside.work()
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
