"""When a save is due, and whether this boundary is a place for one."""

import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from outlive.staging.messages import Reason
from outlive.train.tracked import Tracked

_STEADY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A save that is due, and waits for a boundary at which it can be taken."""

    reason: Reason
    stop: bool = False
    serial: int = 0
    """Of the agent's request that it answers; 0 = it answers none."""

    def joined(self, newer: "Want") -> "Want":
        """The newer one replaces the older, but a stop stays a stop."""
        if self.stop and not newer.stop:
            return Want(reason=self.reason, stop=True, serial=max(self.serial, newer.serial))
        return Want(reason=newer.reason, stop=newer.stop, serial=max(self.serial, newer.serial))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where the loop stands."""

    step: int
    epoch: int | None
    metrics: Mapping[str, Any]


class Pace:
    """Mean time of a step, newer ones weighing more."""

    def __init__(self) -> None:
        self.step_ns = 0
        self._steps = 0
        self._last_ns = 0

    def tick(self) -> int:
        """A step is done; the time now."""
        now = time.monotonic_ns()
        if self._last_ns:
            self._steps = min(self._steps + 1, _STEADY)
            self.step_ns += (now - self._last_ns - self.step_ns) // self._steps
        self._last_ns = now
        return now


class Accumulation:
    """Tells half a gradient accumulation from a whole step: gradients are not saved, so none may be needed.

    A boundary is whole if an optimizer stepped since the one before and no gradient has grown since, or if
    there are no gradients at all. Without an optimizer of torch's among what is tracked there is nothing to
    go by, and every boundary is whole.
    """

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked
        self._stepped = False
        self._settled = False
        self._samples: dict[int, tuple[Tensor, weakref.ref[Tensor], int]] = {}
        self._hook = register_optimizer_step_post_hook(self._on_step)

    def passed(self) -> None:
        """A boundary is behind us."""
        self._settled, self._stepped = self._stepped, False

    def half_done(self, *, between: bool = False) -> bool:
        """Whether a save here would lose gradients. `between`: asked between two epochs, no step since."""
        if not self._tracked.optimizers or not self._tracked.has_gradients():
            return False
        if not (self._stepped or (between and self._settled)):
            return True
        return any(_grew(*sample) for sample in self._samples.values())

    def close(self) -> None:
        self._hook.remove()

    def _on_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    # One stands for all: a backward pass adds to every gradient there is.
                    gradient = parameter.grad
                    self._samples[id(optimizer)] = (parameter, weakref.ref(gradient), gradient._version)
                    return
        self._samples.pop(id(optimizer), None)


def _grew(parameter: Tensor, reference: "weakref.ref[Tensor]", version: int) -> bool:
    gradient = parameter.grad
    if gradient is None or (gradient is reference() and gradient._version == version):
        return False
    # zero_grad(set_to_none=False) changes it too, to nothing
    return gradient.is_sparse or bool(gradient.any())
