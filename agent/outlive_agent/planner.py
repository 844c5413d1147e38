"""When to save for the last time, given how long is left: pure arithmetic, so it can be tested to death."""

from dataclasses import dataclass
from math import sqrt

from outlive_agent.units import duration_text

RECLAIM_PRIOR_SECONDS = 4 * 3600.0
"""Mean time between reclaims until this run has seen some."""
FIRST_SAVE_SECONDS = 60.0
LONGEST_INTERVAL_SECONDS = 15 * 60.0
SHORTEST_INTERVAL_SECONDS = 5.0

DEFAULT_STEP_SECONDS = 1.0
DEFAULT_COPY_SECONDS = 1.0
DEFAULT_UPLOAD_SECONDS = 15.0
MARGIN = 1.5
"""How much longer than measured the last save may take."""
FIXED_SECONDS = 1.0
"""Noticing, the manifest's round trip, the exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What this run measured; None where it hasn't yet. ``in_flight_seconds``: for the upload under way."""

    step_seconds: float | None = None
    copy_seconds: float | None = None
    upload_seconds: float | None = None
    in_flight_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do until the deadline. Times are seconds on CLOCK_MONOTONIC.

    ``save_now``: ask for a save at the next boundary and go on. ``stop_at``: ask for the last save and stop.
    ``drop_in_flight``: the upload under way would keep the last save from finishing in time.
    ``fits``: by these figures the last save becomes a checkpoint in time; None where nothing is measured yet.
    """

    save_now: bool
    stop_at: float
    drop_in_flight: bool
    fits: bool | None
    text: str


def plan(now: float, deadline: float, figures: Figures) -> Plan:
    """Keep training as long as is safe; with a short window save and stop at the next step."""
    needed = last_save_seconds(figures)
    upload = _or(figures.upload_seconds, DEFAULT_UPLOAD_SECONDS)
    left = deadline - now
    in_flight = figures.in_flight_seconds or 0.0
    what = f"{duration_text(max(left, 0.0))} left, a last save needs {duration_text(needed)}"
    if figures.upload_seconds is None and left < 2 * needed:
        return Plan(
            save_now=False,
            stop_at=now,
            drop_in_flight=False,
            fits=None,
            text=f"{duration_text(max(left, 0.0))} left, no save measured yet: saving and stopping at once",
        )
    if left < needed:
        return _too_short(now, left, figures, what=what)
    # A save that began just before the last one would be in its way.
    latest = deadline - needed
    if left < 2 * needed + upload:
        drop = in_flight + needed > left
        busy = " (dropping the one under way)" if drop and in_flight else ""
        return Plan(
            save_now=False,
            stop_at=now,
            drop_in_flight=drop and in_flight > 0,
            fits=True,
            text=f"{what}: saving and stopping at the next step{busy}",
        )
    return Plan(
        save_now=in_flight == 0.0,
        stop_at=latest,
        drop_in_flight=False,
        fits=True,
        text=f"{what}: saving now, training on for {duration_text(latest - now)}, then the last save",
    )


def _too_short(now: float, left: float, figures: Figures, *, what: str) -> Plan:
    in_flight = figures.in_flight_seconds
    bare = sum(_bare(figures))
    if in_flight is not None and in_flight <= left and bare + in_flight > left:
        return Plan(
            save_now=False,
            stop_at=now,
            drop_in_flight=False,
            fits=False,
            text=f"{what}: finishing the save under way ({duration_text(in_flight)}), then trying a last one",
        )
    return Plan(
        save_now=False,
        stop_at=now,
        drop_in_flight=in_flight is not None and bare + in_flight > left,
        fits=bare <= left,
        text=f"{what}: saving and stopping at once, "
        + ("without the usual margin" if bare <= left else "though it may not finish"),
    )


def last_save_seconds(figures: Figures) -> float:
    """From asking to being durable, with margins."""
    return MARGIN * sum(_bare(figures)) + FIXED_SECONDS


def interval_seconds(figures: Figures, *, saves: int, mean_seconds: float = RECLAIM_PRIOR_SECONDS) -> float:
    """The automatic interval: Young's formula on the measured stall, between twice the upload and 15 minutes.

    Before the first save there is nothing measured, and nothing safe: it comes early.
    """
    if saves == 0:
        return FIRST_SAVE_SECONDS
    best = sqrt(2 * _or(figures.copy_seconds, DEFAULT_COPY_SECONDS) * mean_seconds)
    least = max(SHORTEST_INTERVAL_SECONDS, 2 * _or(figures.upload_seconds, DEFAULT_UPLOAD_SECONDS))
    return max(least, min(best, LONGEST_INTERVAL_SECONDS))


def _bare(figures: Figures) -> tuple[float, float, float]:
    return (
        _or(figures.step_seconds, DEFAULT_STEP_SECONDS),
        _or(figures.copy_seconds, DEFAULT_COPY_SECONDS),
        _or(figures.upload_seconds, DEFAULT_UPLOAD_SECONDS),
    )


def _or(measured: float | None, default: float) -> float:
    return default if measured is None else measured
