"""How long a last save has, at the least: the provider's word, systemd's patience, the pod's grace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from time import time

from outlive_agent.doctor.finding import Finding, ok, warning
from outlive_agent.doctor.surroundings import Around
from outlive_agent.doctor.units_seen import UnitsSeen
from outlive_agent.drain import STOP_WINDOW
from outlive_agent.units import duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """``seconds``: from the first word to the end. ``whose``: who gives no more."""

    seconds: float
    whose: str


def shortest(around: Around, *, grace: float | None, given: float | None) -> Window | None:
    """The one that counts; None where nobody says. ``grace``: between SIGTERM and SIGKILL, as told."""
    if given is not None:
        return Window(seconds=given, whose="the window you gave")
    found = [] if grace is None else [Window(seconds=grace, whose=f"who stops it ({STOP_WINDOW})")]
    for known in (around.provider, *around.inside):
        if known is None or known.window_seconds is None:
            continue
        if known.name == "kubernetes" and grace is not None:
            continue
        whose = f"{known.title}'s mail, if it is passed on," if known.heard == "api" else known.title
        found.append(Window(seconds=known.window_seconds, whose=whose))
    return min(found, key=lambda window: window.seconds, default=None)


def stop(
    units: UnitsSeen | None,
    window: Window | None,
    environ: Mapping[str, str],
    *,
    grace: float | None,
    now: float | None = None,
) -> Sequence[Finding]:
    """Whether those who stop the training leave it the time that there is."""
    found = []
    if units is not None:
        found.append(_systemd(units, window))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        found.append(_kubernetes(grace))
    if environ.get("SLURM_JOB_ID"):
        found.append(_slurm(environ, time() if now is None else now))
    return found


def _systemd(units: UnitsSeen, window: Window | None) -> Finding:
    figures = {"train_stop_seconds": _finite(units.train), "agent_stop_seconds": _finite(units.agent)}
    seen = (
        f"the training may take {_text(units.train)} to stop, then the agent {_text(units.agent)}, or longer"
    )
    if window is not None and 0 < window.seconds <= units.train:
        return warning(
            "unit-times",
            f"{seen}; {window.whose} gives {duration_text(window.seconds)} for both",
            change="training: {stop_grace: 10s} in the job file leaves the save the rest",
            **figures,
        )
    return ok("unit-times", seen, **figures)


def _kubernetes(grace: float | None) -> Finding:
    if grace is None:
        return warning(
            "grace",
            "how long the pod has after SIGTERM is not known here; 30 s are assumed",
            change=f"set {STOP_WINDOW} to its terminationGracePeriodSeconds, and that to what a save needs",
            grace_seconds=None,
        )
    return ok(
        "grace", f"the pod has {duration_text(grace)} after SIGTERM ({STOP_WINDOW})", grace_seconds=grace
    )


def _slurm(environ: Mapping[str, str], now: float) -> Finding:
    text = environ.get("SLURM_JOB_END_TIME", "")
    if not (text.isdecimal() and len(text) < 12):
        change = (
            "sbatch --signal=B:TERM@120 (Slurm sends it up to 60 s earlier), and exec outlive in the script"
        )
        return warning("job-end", "Slurm does not say when the job ends", change=change, seconds_left=None)
    left = float(text) - now
    if left <= 0:
        change = "start another job"
        return warning("job-end", "the job's time is over", change=change, seconds_left=0)
    return ok("job-end", f"the job ends in {duration_text(left)}; it is saved before", seconds_left=int(left))


def _finite(seconds: float) -> float | None:
    return None if isinf(seconds) else seconds


def _text(seconds: float) -> str:
    return "for ever" if isinf(seconds) else duration_text(seconds)
