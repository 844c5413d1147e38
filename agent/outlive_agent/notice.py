"""One announcement that this machine will be taken away, whoever made it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["reclaim", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """``reclaim`` leads to the end game, ``hint`` to an early save. Repeats have the same ``id``.

    ``deadline`` and ``received_at`` are seconds on CLOCK_MONOTONIC: a wall clock may be an hour off.
    ``deadline`` is None where nothing is known to be left.
    """

    kind: Kind
    deadline: float | None
    source: str
    id: str
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The announcement with this ``id`` no longer stands; ``by`` is the one that took its place, if any."""

    source: str
    id: str
    by: str = ""


Tell: TypeAlias = Callable[[Notice | Withdrawn], None]
"""Where a source says what it learnt; never blocks."""
