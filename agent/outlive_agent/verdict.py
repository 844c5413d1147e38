"""How a life ended, in one word for the history and one number for whoever started us."""

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outlive.staging.messages import Outcome
from outlive_agent.exits import Exit

Cause: TypeAlias = Literal["signal", "interrupt", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known at the end. ``child_code`` is None where no command was ours to run."""

    attached: bool
    superseded: bool
    cause: Cause | None
    outcome: Outcome | None
    child_code: int | None
    reached_step: int
    saved_step: int
    given_up: bool = False
    """systemd starts the training no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``text`` completes the sentence "the run ...". ``steps_lost``: what the next life trains again."""

    exit: Exit
    outcome: str
    steps_lost: int
    text: str


def judge(facts: Facts) -> Verdict:
    """One answer for each way to end."""
    lost = max(0, facts.reached_step - facts.saved_step)
    if facts.superseded:
        return _verdict(Exit.SUPERSEDED, "superseded", lost, "goes on elsewhere: a newer life exists")
    if facts.given_up and facts.outcome not in {"finished", "stopped"}:
        return _verdict(Exit.CONFIG, "failed", lost, "failed: its training is started no more")
    if not facts.attached:
        return _unattached(facts)
    if facts.outcome == "finished":
        if facts.child_code not in (None, 0):
            text = f"is finished, but the command ended with {code_text(facts.child_code)}"
            return _verdict(Exit.FAILED, "failed", lost, text)
        if lost:
            # Nobody asked for it to stop: systemd begins again, and the end is trained once more.
            code = Exit.FAILED if facts.child_code is None else Exit.SAVE_FAILED
            return _verdict(code, "save-failed", lost, "is finished, but its end was not saved")
        return _verdict(Exit.FINISHED, "finished", 0, "is finished")
    if facts.cause is not None or facts.outcome == "stopped" or facts.child_code == Exit.RESUME:
        if lost:
            return _verdict(Exit.SAVE_FAILED, "save-failed", lost, "stopped, but the last save failed")
        return _verdict(Exit.RESUME, "stopped", 0, "stopped and is saved: start it again to go on")
    if facts.child_code == 0 and facts.outcome is None:
        if lost:
            text = "ended without a last save (by os._exit, or without 'with outlive.attach(...)')"
            return _verdict(Exit.SAVE_FAILED, "save-failed", lost, text)
        return _verdict(Exit.FINISHED, "ended", 0, "ended without saying whether it is finished")
    how = "" if facts.child_code is None else f" ({code_text(facts.child_code)})"
    return _verdict(Exit.FAILED, "failed", lost, f"failed{how}")


def code_text(code: int | None) -> str:
    """``exit code 1``, ``signal 11, SIGSEGV``"""
    if code is None:
        return "no exit code"
    if code >= 0:
        return f"exit code {code}"
    if -code == signal.SIGKILL:
        return "signal 9, SIGKILL: by hand, or out of memory"
    with suppress(ValueError):  # a real-time signal has no name
        return f"signal {-code}, {signal.Signals(-code).name}"
    return f"signal {-code}"


def _unattached(facts: Facts) -> Verdict:
    lost = max(0, facts.reached_step - facts.saved_step)
    if facts.child_code is None and lost:
        text = "stopped, and what an agent before this one left in memory was not saved"
        return _verdict(Exit.SAVE_FAILED, "save-failed", lost, text)
    if facts.child_code is None:
        return _verdict(Exit.RESUME, "stopped", 0, "stopped before its training began")
    if facts.child_code == 0:
        return _verdict(Exit.FINISHED, "finished", 0, "command ended, and never called outlive.attach")
    text = f"command ended with {code_text(facts.child_code)}, and never called outlive.attach"
    if facts.cause is not None:
        return _verdict(Exit.RESUME, "stopped", 0, "stopped before its training began")
    return _verdict(Exit.FAILED, "failed", 0, text)


def _verdict(code: Exit, outcome: str, lost: int, text: str) -> Verdict:
    steps = f", {lost:,} step{'s' if lost != 1 else ''} lost" if lost else ""
    return Verdict(exit=code, outcome=outcome, steps_lost=lost, text=f"{text}{steps}")
