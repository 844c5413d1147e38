"""What is known of a difference, as far as it points to a cause."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from outlive.staging.rehearsal import Entry
from outlive_agent.rehearse.compare import Difference
from outlive_agent.rehearse.leg import Leg

START = -1
"""The entry of where a leg's loop (re)started."""
SMALL = 1e-3
"""Relative to a metric: what rounding can have grown to within a step, and other data hardly is."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """``control``: the same leg once more; ``control_differs``: it is not what it repeats."""

    found: Difference
    uninterrupted: Leg
    control: Leg
    control_differs: bool

    @property
    def at_once(self) -> bool:
        """Whether the very first step after the resume differs."""
        return self.found.step == self.found.leg.first + 1

    @property
    def loops(self) -> bool:
        """Whether the script takes its data through run.batches."""
        return any(entry.batches for entry in self.uninterrupted.entries.values())

    @cached_property
    def shift(self) -> int | None:
        """The step at which the uninterrupted run was given this very data, if it ever was."""
        there = self.found.there.batches
        if not there or not self.found.batches:
            return None
        for step, entry in sorted(self.uninterrupted.entries.items()):
            if entry.batches == there:
                return step
        return None

    @cached_property
    def forgotten(self) -> Mapping[str, tuple[str, str]]:
        """Variables that stood elsewhere when the loop went on, in this leg and its repetition alike."""
        before = self.uninterrupted.entries.get(self.found.leg.first)
        here, again = (leg.entries.get(START) for leg in (self.found.leg, self.control))
        if before is None or here is None or again is None:
            return {}
        return {
            name: (text, here.around[name])
            for name, text in before.around.items()
            if name in here.around
            and here.around[name] != text
            and again.around.get(name) == here.around[name]
        }

    @cached_property
    def size(self) -> float:
        """The largest relative distance of a metric, or else of a tensor's size; 0.0 where all are equal."""
        here, there = _numbers(self.found.here), _numbers(self.found.there)
        both = [(here[name], there[name]) for name in self.found.metrics if name in here and name in there]
        both = both or [pair for name in self.found.tensors if (pair := self.found.norms(name)) is not None]
        return max((abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in both), default=0.0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Versions, devices and kernel settings of the resumed training."""
        values = self.found.there.values
        prefix = "environment/"
        return {
            path.removeprefix(prefix): values[path].strip('"') for path in values if path.startswith(prefix)
        }


def _numbers(entry: Entry) -> dict[str, float]:
    return {name: float.fromhex(text) for name, text in entry.metrics.items()}
