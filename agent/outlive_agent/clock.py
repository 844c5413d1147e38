"""The recovery clock: from one life's notice to the next one's first step, and what the time was good for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from outlive.store.events import Event
from outlive_agent.story import LifeStory, number, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How one life came to train. Durations are seconds; what nobody wrote down is None."""

    life: int
    notice_to_saved: float | None
    """In the life before: from the first announcement to its last word."""
    away: float | None
    """From the last word of the life before to this machine's boot: what the cloud took."""
    boot_to_agent: float | None
    agent_to_restored: float | None
    agent_to_first_step: float | None
    steps_lost: int | None
    """Of the life before."""
    bytes: int | None


def recoveries(story: Sequence[LifeStory]) -> list[Recovery]:
    """One for each life that has begun to train, oldest first."""
    before: list[LifeStory | None] = [None, *story[:-1]]
    told = [(life, last) for life, last in zip(story, before, strict=True) if _find(life, "started")]
    return [_recovery(life, last) for life, last in told]


def goodput(story: Sequence[LifeStory]) -> float | None:
    """Time in steps that survived / time in which a machine was there for the run; None if unknown."""
    paid = kept = 0.0
    for life in story:
        began, ended = _booted(life), life.events[-1].at if life.events else None
        first, reached = _find(life, "training"), life.reached_step
        if began is None or ended is None:
            continue
        paid += (ended - began).total_seconds()
        if first is None or reached is None or life.from_step is None or reached <= life.from_step:
            continue
        survived = (reached - life.from_step - (life.steps_lost or 0)) / (reached - life.from_step)
        kept += max(0.0, survived) * (ended - first.at).total_seconds()
    return kept / paid if paid > 0 else None


def _recovery(life: LifeStory, last: LifeStory | None) -> Recovery:
    started, restored = _find(life, "started"), _find(life, "restored")
    booted = _booted(life)
    gone = last.events[-1].at if last is not None and last.events else None
    return Recovery(
        life=life.number,
        notice_to_saved=_noticed(last),
        away=None if gone is None or booted is None else (booted - gone).total_seconds(),
        boot_to_agent=None if started is None else number(started, "up_seconds"),
        agent_to_restored=None
        if started is None or restored is None
        else (restored.at - started.at).total_seconds(),
        agent_to_first_step=life.recovery_seconds,
        steps_lost=None if last is None else last.steps_lost,
        bytes=None if restored is None else int(number(restored, "bytes") or 0),
    )


def _noticed(life: LifeStory | None) -> float | None:
    if life is None or life.ended is None:
        return None
    for event in life.events:
        if event.event == "notice" and words(event, "kind") == "reclaim":
            return (life.ended.at - event.at).total_seconds()
    return None


def _booted(life: LifeStory) -> datetime | None:
    """When the machine was there; where that is not known, when the agent was."""
    started = _find(life, "started")
    if started is None:
        return None
    return started.at - timedelta(seconds=number(started, "up_seconds") or 0.0)


def _find(life: LifeStory, name: str) -> Event | None:
    return next((event for event in life.events if event.event == name), None)
