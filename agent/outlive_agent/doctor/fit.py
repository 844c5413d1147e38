"""Whether a last save fits into the window, in one sentence with its figures. Pure arithmetic."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from outlive_agent.doctor.checkpoint import State
from outlive_agent.doctor.finding import Figure, Finding, ok, warning
from outlive_agent.doctor.rates import rate_text
from outlive_agent.doctor.window import Window
from outlive_agent.planner import (
    DEFAULT_STEP_SECONDS,
    FIXED_SECONDS,
    LONGEST_INTERVAL_SECONDS,
    UNSURE_SHARE,
)
from outlive_agent.settings.values import Every
from outlive_agent.units import bytes_text, duration_text

MARGIN: Final = 1 + UNSURE_SHARE
"""So much longer than measured a last save may take, as the agent plans before it knows how rates vary."""
BYTES_A_PARAMETER: Final = 12
"""Weights in fp32 and AdamW's two moments. Said wherever it is used: a rule of thumb."""
COPY_RATE: Final = 2e9
"""Bytes a second into fresh memory, where it could not be measured."""
FASTEST: Final = 1e9
"""Bytes a second that hardly any single machine sends to a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Bytes a second: into memory and from there to the store."""

    copy: float
    upload: float


def save_seconds(state: State, speeds: Speeds, *, margin: float = MARGIN) -> float:
    """From the word to a checkpoint, with a margin: the step under way, the copy, the upload."""
    moved = state.whole_bytes / speeds.copy + state.sent_bytes / speeds.upload
    return margin * moved + overhead(state, margin=margin)


def overhead(state: State | None, *, margin: float = MARGIN) -> float:
    """What a save takes whatever its size."""
    step = DEFAULT_STEP_SECONDS if state is None else state.step_seconds or DEFAULT_STEP_SECONDS
    return margin * step + FIXED_SECONDS


def largest(window: Window, speeds: Speeds) -> float:
    """How many bytes fit into the window."""
    seconds = max(0.0, (window.seconds - overhead(None)) / MARGIN)
    return seconds / (1 / speeds.copy + 1 / speeds.upload)


def last_save(state: State | None, speeds: Speeds, window: Window | None, *, every: Every) -> Finding:
    """The sentence."""
    if state is None:
        return _any_state(speeds, window)
    needed = save_seconds(state, speeds)
    what = f"a final save of {bytes_text(state.whole_bytes)}"
    part = "" if state.sent_bytes >= state.whole_bytes else f" ({bytes_text(state.sent_bytes)} of it to send)"
    parts = f"copy {duration_text(state.whole_bytes / speeds.copy)}, "
    parts += f"upload {duration_text(state.sent_bytes / speeds.upload)}, and half as much again"
    seen = f"{what}{part} needs about {duration_text(needed)} here ({parts})"
    figures: dict[str, Figure] = {
        "bytes": state.whole_bytes,
        "sent_bytes": state.sent_bytes,
        "needed_seconds": round(needed, 1),
        "window_seconds": None if window is None else window.seconds,
        "fits": None if window is None else needed <= window.seconds,
    }
    if window is None:
        return ok("last-save", f"{seen}; how long there is nobody says", **figures)
    if window.seconds == 0:
        seen = f"{window.whose} gives no notice: {_lost(state, speeds, every)}"
        return warning("last-save", seen, change=_save_often(state, speeds, every), **figures)
    gives = f"{window.whose} gives {duration_text(window.seconds)}"
    if needed <= window.seconds:
        return ok("last-save", f"{seen}; {gives}: it fits, no step is lost", **figures)
    wanted = (
        MARGIN
        * state.sent_bytes
        / max(1.0, window.seconds - overhead(state) - MARGIN * state.whole_bytes / speeds.copy)
    )
    bare = save_seconds(state, speeds, margin=1.0)
    whether = "it would not fit," if bare > window.seconds else "it fits only if nothing goes slower; else"
    faster = f"; or {rate_text(wanted)} of upload: a bucket nearer, another machine"
    return warning(
        "last-save",
        f"{seen}; {gives}: {whether} {_lost(state, speeds, every)}",
        change=_save_often(state, speeds, every) + (faster if wanted < FASTEST else ""),
        **figures,
    )


def needed_rate(state: State | None, window: Window | None) -> Finding:
    """From a desk the machine's rate can't be measured: what it must be."""
    if window is None:
        change = "reclaim: {provider: ...} in the job file, or --window 120s"
        return warning("last-save", "who takes the machine, and how long before, is not known", change=change)
    gives = f"{window.whose} gives {duration_text(window.seconds)}"
    if window.seconds <= overhead(state):
        return warning(
            "last-save",
            f"{gives}: periodic saves alone carry the run",
            change="save: {every: 5 min}, or oftener",
        )
    if state is None:
        each = rate_text(MARGIN * 1e9 / (window.seconds - overhead(None)))
        seen = f"{gives}: each GB of state needs {each} of upload there; --state 14GB says it for yours"
        return ok("last-save", seen, window_seconds=window.seconds)
    wanted = MARGIN * state.sent_bytes / (window.seconds - overhead(state))
    seen = (
        f"{gives}: a final save of {bytes_text(state.whole_bytes)} needs {rate_text(wanted)} of upload there"
    )
    figures: dict[str, Figure] = {"window_seconds": window.seconds, "needed_bytes_per_second": int(wanted)}
    if wanted < FASTEST / 2:
        return ok("last-save", seen, **figures)
    change = "save: {every: 5 min}, so that no more than that is lost; outlive doctor on the machine measures"
    return warning("last-save", f"{seen}, which few have", change=change, **figures)


def _any_state(speeds: Speeds, window: Window | None) -> Finding:
    if window is None:
        seen = (
            f"1 GB of state takes about {duration_text(MARGIN * (1e9 / speeds.copy + 1e9 / speeds.upload))}"
        )
        return ok("last-save", f"{seen}; --state 14GB says it for yours", fits=None)
    gives = f"{window.whose} gives {duration_text(window.seconds)}"
    most = int(largest(window, speeds))
    figures: dict[str, Figure] = {"window_seconds": window.seconds, "largest_bytes": most, "fits": None}
    if most == 0:
        change = "save: {every: 5 min}, or oftener: what came after the last save is lost"
        return warning("last-save", f"{gives}: no last save fits", change=change, **figures)
    thumb = f"AdamW keeps about {BYTES_A_PARAMETER} bytes a parameter, so {_parameters(most)}"
    seen = f"{gives}: a state of up to {bytes_text(most)} fits ({thumb}); --state 14GB checks yours"
    return ok("last-save", seen, **figures)


def _parameters(size: int) -> str:
    count = size / BYTES_A_PARAMETER
    return f"{count / 1e9:.1f} billion of them" if count >= 1e9 else f"{count / 1e6:.0f} million of them"


def _lost(state: State, speeds: Speeds, every: Every) -> str:
    """What a reclaim costs when no last save comes through."""
    if every.steps is not None:
        return f"up to {every.steps:,} steps may be lost"
    longest = _interval(state, speeds, every)
    steps = f", about {longest / state.step_seconds:,.0f} steps," if state.step_seconds else ""
    return f"up to {duration_text(longest)} of training{steps} may be lost"


def _interval(state: State, speeds: Speeds, every: Every) -> float:
    """The longest there can be between two saves, as configured."""
    if every.duration is not None:
        return every.duration.total_seconds()
    return max(LONGEST_INTERVAL_SECONDS, 2 * state.sent_bytes / speeds.upload)


def _save_often(state: State, speeds: Speeds, every: Every) -> str:
    """Not oftener than twice the upload takes, as the agent's own interval; empty if that is no gain."""
    minutes = max(1, ceil(2 * state.sent_bytes / speeds.upload / 60))
    if every.steps is None and minutes * 60 >= _interval(state, speeds, every):
        return "a smaller state, such as only what is trained"
    return f"save: {{every: {minutes} min}}, so that no more than that is lost"
