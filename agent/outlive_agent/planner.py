"""When to save for the last time, given how long is left: pure arithmetic, so it can be tested to death.

A last save needs ``step + copy + upload + margin + FIXED_SECONDS``: the wait for the next boundary, the copy,
and the upload of as many bytes as the recent saves had to send. The margin is the larger of two: ``SPREADS``
standard deviations of what was measured (the three taken as independent), and a share of the sum, which is
smaller once there are enough samples to know the spread.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, TypeAlias

from outlive_agent.measured import DEFAULT_UPLOAD_SECONDS, Estimate, Figures
from outlive_agent.units import bytes_text, duration_text

RECLAIM_PRIOR_SECONDS = 4 * 3600.0
"""Mean time between reclaims until this run has seen some."""
FIRST_SAVE_SECONDS = 60.0
LONGEST_INTERVAL_SECONDS = 15 * 60.0
SHORTEST_INTERVAL_SECONDS = 5.0

DEFAULT_STEP_SECONDS = 1.0
DEFAULT_COPY_SECONDS = 1.0
SPREADS = 3.0
LEAST_SHARE = 0.25
UNSURE_SHARE = 0.5
ENOUGH_SAMPLES = 3
"""With fewer uploads than this their spread is not known, and ``UNSURE_SHARE`` holds."""
FIXED_SECONDS = 1.0
"""Noticing, and the exit."""

Action: TypeAlias = Literal["save and go on", "go on", "save and stop", "finish", "nothing fits"]
"""What is done about a notice. ``finish``: the save under way fits and a new one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a last save needs, in seconds."""

    step: float
    copy: float
    upload: float
    margin: float
    guessed: bool
    """Nothing of this run was uploaded yet."""
    bytes: int = 0
    """What it has to send."""

    @property
    def bare(self) -> float:
        """Without any margin."""
        return self.step + self.copy + self.upload

    @property
    def safe(self) -> float:
        """With half the margin: still counted on where the full one was planned for."""
        return self.bare + self.margin / 2 + FIXED_SECONDS

    @property
    def full(self) -> float:
        """With the margin: what is planned for."""
        return self.bare + self.margin + FIXED_SECONDS

    @property
    def text(self) -> str:
        """With its figures, so that whoever reads it can check it."""
        total = f"a last save needs {duration_text(self.full)}"
        if self.guessed:
            return f"{total} as far as can be guessed before the first one"
        rate = (
            f" at {bytes_text(round(self.bytes / self.upload))}/s" if self.upload > 0 and self.bytes else ""
        )
        return (
            f"{total} (step {duration_text(self.step)}, copy {duration_text(self.copy)}, "
            f"{bytes_text(self.bytes)}{rate}, margin {duration_text(self.margin)})"
        )

    def seconds(self) -> dict[str, float]:
        """For the history."""
        parts = {"step": self.step, "copy": self.copy, "upload": self.upload, "margin": self.margin}
        whole = {"needed_seconds": round(self.full, 3)}
        return whole | {f"{name}_seconds": round(value, 3) for name, value in parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do until the deadline. ``stop_at``, on CLOCK_MONOTONIC: ask for the last save then, and stop.

    ``save_now``: ask for a save at the next boundary and go on. ``drop_in_flight``: the upload under way
    would keep the last save from finishing in time. ``fits``: by these figures the last save becomes a
    checkpoint in time; None where nothing is measured, or no deadline known.
    """

    action: Action
    stop_at: float
    fits: bool | None
    text: str
    need: Need
    save_now: bool = False
    drop_in_flight: bool = False


def plan(now: float, deadline: float | None, figures: Figures, *, covered: bool = False) -> Plan:
    """Keep training as long as is safe; with a short window save and stop at the next step.

    ``covered``: a save was asked for since the notice came, so that training on risks only what is new.
    """
    need = needed(figures)
    if deadline is None:
        text = "how much time is left is not known: saving and stopping at the next step"
        return Plan(action="save and stop", stop_at=now, fits=None, text=text, need=need)
    left = deadline - now
    busy = figures.in_flight_seconds
    what = f"{duration_text(max(left, 0.0))} left, {need.text}"
    fits = None if need.guessed else True
    if left > need.full and (covered or left >= 2 * need.full):
        latest = deadline - need.full
        on = f"training on for {duration_text(latest - now)}, then the last save"
        save = busy is None and not covered
        return Plan(
            action="save and go on" if save else "go on",
            stop_at=latest,
            fits=fits,
            text=f"{what}: {'saving now, ' if save else ''}{on}",
            need=need,
            save_now=save,
        )
    if left >= need.safe:
        drop = busy is not None and busy + need.safe > left
        text = (
            f"{what}: saving and stopping at the next step{' (dropping the save under way)' if drop else ''}"
        )
        return Plan(action="save and stop", stop_at=now, fits=fits, text=text, need=need, drop_in_flight=drop)
    return _short(now, deadline, figures, need=need, what=what)


def _short(now: float, deadline: float, figures: Figures, *, need: Need, what: str) -> Plan:
    """No save fits with its margin."""
    left, busy = deadline - now, figures.in_flight_seconds
    ends = busy is not None and busy <= left
    if need.guessed and not ends:
        text = f"{what}: saving and stopping at once"
        return Plan(action="save and stop", stop_at=now, fits=None, text=text, need=need)
    bare = need.bare <= left
    if bare and not need.guessed and (not ends or (busy or 0.0) + need.bare <= left):
        drop = busy is not None and not ends
        text = f"{what}: saving and stopping at once, without the usual margin"
        return Plan(action="save and stop", stop_at=now, fits=True, text=text, need=need, drop_in_flight=drop)
    if ends and busy is not None:
        text = f"{what}: finishing the save under way ({duration_text(busy)}), as a new one would not fit"
        return Plan(action="finish", stop_at=deadline, fits=False, text=text, need=need)
    text = f"{what}: nothing fits in that; the last checkpoint stands, and one more is tried all the same"
    return Plan(action="nothing fits", stop_at=now, fits=False, text=text, need=need)


def needed(figures: Figures) -> Need:
    """What a last save needs by these figures."""
    step = figures.step or Estimate(seconds=DEFAULT_STEP_SECONDS, samples=0)
    copy = figures.copy or Estimate(seconds=DEFAULT_COPY_SECONDS, samples=0)
    upload = figures.upload or Estimate(seconds=DEFAULT_UPLOAD_SECONDS, samples=0)
    spread = sqrt(step.deviation**2 + copy.deviation**2 + upload.deviation**2)
    share = LEAST_SHARE if upload.samples >= ENOUGH_SAMPLES else UNSURE_SHARE
    bare = step.seconds + copy.seconds + upload.seconds
    return Need(
        step=step.seconds,
        copy=copy.seconds,
        upload=upload.seconds,
        margin=max(share * bare, SPREADS * spread),
        guessed=not upload.samples,
        bytes=figures.changed_bytes or 0,
    )


def last_save_seconds(figures: Figures) -> float:
    """From asking to being durable, with the margin."""
    return needed(figures).full


def interval_seconds(figures: Figures, *, saves: int, mean_seconds: float = RECLAIM_PRIOR_SECONDS) -> float:
    """The automatic interval: Young's formula on the measured stall, between twice the upload and 15 minutes.

    Before the first save there is nothing measured, and nothing safe: it comes early.
    """
    if saves == 0:
        return FIRST_SAVE_SECONDS
    copy = DEFAULT_COPY_SECONDS if figures.copy is None else figures.copy.seconds
    upload = DEFAULT_UPLOAD_SECONDS if figures.upload is None else figures.upload.seconds
    best = sqrt(2 * copy * mean_seconds)
    return max(SHORTEST_INTERVAL_SECONDS, 2 * upload, min(best, LONGEST_INTERVAL_SECONDS))
