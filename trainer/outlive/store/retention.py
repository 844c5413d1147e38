"""Which checkpoints are kept: a pure policy over what is known about them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite

from outlive.errors import ConfigError
from outlive.store.layout import CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What the policy may look at."""

    id: CheckpointId
    metrics: Mapping[str, float] = field(default_factory=dict)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The policy. A checkpoint stays if any of the three wants it.

    ``last``: so many of the newest. ``every_steps``: for ever, the first one at or after each multiple of it.
    ``best``: the one with the best value of this metric: the lowest, or of ``-metric`` the highest.
    """

    last: int = 3
    every_steps: int | None = None
    best: str | None = None

    def __post_init__(self) -> None:
        wrong = [
            text
            for text, is_wrong in (
                (f"keep.last must be at least 1 (got {self.last})", self.last < 1),
                (
                    f"keep.every_steps must be at least 1 (got {self.every_steps})",
                    self.every_steps is not None and self.every_steps < 1,
                ),
                ("keep.best must name a metric", self.best is not None and not self.best.lstrip("-")),
            )
            if is_wrong
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))


def retained(
    checkpoints: Sequence[Saved], keep: Keep, *, protected: Iterable[CheckpointId] = ()
) -> set[CheckpointId]:
    """Those that stay, of ``checkpoints`` in order of preference, best first. The protected stay in any case.

    Applying it again to what it retained retains the same, so it does not matter how often it is applied.
    """
    ids = [saved.id for saved in checkpoints]
    staying = set(ids[: keep.last]) | (set(protected) & set(ids))
    if keep.every_steps:
        staying |= _milestones(ids, keep.every_steps)
    if keep.best:
        staying |= _best(checkpoints, keep.best)
    return staying


def without_metric(checkpoints: Sequence[Saved], keep: Keep) -> list[str]:
    """What to tell who asked for the best by a metric that no checkpoint has."""
    if not keep.best or not checkpoints or _best(checkpoints, keep.best):
        return []
    known = sorted({name for saved in checkpoints for name in saved.metrics})
    have = f"they have {', '.join(known[:5])}" if known else "they have no metrics"
    return [f"no checkpoint has a finite metric {keep.best.lstrip('-')!r}, so none stays as the best: {have}"]


def _milestones(ids: Sequence[CheckpointId], every: int) -> set[CheckpointId]:
    """The first checkpoint of each stretch of ``every`` steps, but not of the one that begins at 0."""
    first: dict[int, CheckpointId] = {}
    for checkpoint in ids:
        stretch = checkpoint.step // every
        if stretch and (stretch not in first or checkpoint.step < first[stretch].step):
            first[stretch] = checkpoint
    return set(first.values())


def _best(checkpoints: Sequence[Saved], best: str) -> set[CheckpointId]:
    """The best one; of equals the first in order. A value that is not finite is no value."""
    metric, sign = (best[1:], -1.0) if best.startswith("-") else (best, 1.0)
    values = [(sign * saved.metrics.get(metric, float("nan")), saved.id) for saved in checkpoints]
    finite = [(value, checkpoint) for value, checkpoint in values if isfinite(value)]
    return {min(finite, key=lambda pair: pair[0])[1]} if finite else set()
