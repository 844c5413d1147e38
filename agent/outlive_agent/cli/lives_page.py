"""How ``outlive history`` tells a run: a line a life, and what happened in each."""

from collections.abc import Callable, Sequence

from outlive.store.events import Event
from outlive_agent.cli.output import Column, Printer, count_text
from outlive_agent.story import ENDINGS, LifeStory, number, words
from outlive_agent.units import bytes_text, duration_text, iso_text, time_text

_COLUMNS = (
    Column(title="LIFE", right=True),
    Column(title="BEGAN"),
    Column(title="AGO", right=True, priority=2),
    Column(title="MACHINE", priority=3, least=12),
    Column(title="FROM", right=True),
    Column(title="TO", right=True),
    Column(title="ENDED"),
    Column(title="LOST", right=True),
    Column(title="RECOVERY", right=True, priority=1),
)
_UNKNOWN = "?"
_MOST_REASONS = 5


def print_lives(printer: Printer, story: Sequence[LifeStory]) -> None:
    """The table of lives, and the sum."""
    printer.table(_COLUMNS, [_row(printer, life) for life in story])
    lost = [life.steps_lost for life in story]
    known = sum(steps for steps in lost if steps)
    more = "" if None not in lost[:-1] else ", besides what vanished lives had not saved"
    reached = max((life.reached_step or 0 for life in story), default=0)
    lives = count_text(len(story), "life", "lives")
    printer.say()
    for life in [life for life in story if life.why][-_MOST_REASONS:]:
        printer.say(f"life {life.number} failed: {life.why}", style="red" if life.after is None else "")
    printer.say(f"{lives}, step {reached:,} reached, {count_text(known, 'step')} lost{more}")


def print_events(printer: Printer, story: Sequence[LifeStory]) -> None:
    """What happened, life by life."""
    for life in story:
        printer.say()
        printer.say(f"life {life.number} on {_machine(life)}", style="bold")
        told = [(time_text(event.at, seconds=True), event_text(event)) for event in life.events]
        printer.facts(told or [("", "nothing is written down")])


def life_json(life: LifeStory) -> dict[str, object]:
    """The same for programs."""
    adopted = life.adoption.checkpoint if life.adoption else None
    who = life.claim.identity if life.claim else None
    return {
        "life": life.number,
        "began_at": iso_text(life.claim.claimed_at) if life.claim else None,
        "host": who.host if who else None,
        "machine": who.machine if who else None,
        "pid": who.pid if who else None,
        "command": list(who.command) if who else None,
        "resumed_from": {"life": adopted.life, "step": adopted.step} if adopted else None,
        "rewind": life.adoption.rewind if life.adoption else False,
        "from_step": life.from_step,
        "to_step": life.reached_step,
        "ended": life.outcome,
        "ended_at": iso_text(life.ended.at) if life.ended else None,
        "exit": number(life.ended, "exit") if life.ended else None,
        "why": life.why or None,
        "steps_lost": life.steps_lost,
        "steps_lost_between": None if life.lost_between is None else list(life.lost_between),
        "recovery_seconds": life.recovery_seconds,
        "checkpoints": [found.step for found in life.checkpoints],
        "events": [
            {**event.details, "event": event.event, "at": iso_text(event.at)} for event in life.events
        ],
    }


def event_text(event: Event) -> str:
    """One event in a sentence; one that we don't know, as it was written."""
    tell = _SENTENCES.get(event.event)
    if tell is not None:
        return tell(event)
    figures = ", ".join(f"{name} {value}" for name, value in event.details.items())
    return f"{event.event}: {figures}" if figures else event.event


def _row(printer: Printer, life: LifeStory) -> list[str]:
    began = life.claim.claimed_at if life.claim else None
    recovery, lost = life.recovery_seconds, life.steps_lost
    return [
        str(life.number),
        printer.day(began) if began else _UNKNOWN,
        printer.age(began) if began else "",
        _machine(life),
        _from(life),
        _UNKNOWN if life.reached_step is None else f"{life.reached_step:,}",
        _ending(life),
        _lost(life, lost),
        "" if recovery is None else duration_text(recovery),
    ]


def _lost(life: LifeStory, lost: int | None) -> str:
    if lost is not None:
        return f"{lost:,}"
    between = life.lost_between
    if between is not None and between != (0, None):
        least, most = between
        return f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
    return "" if life.outcome == "open" else _UNKNOWN


def _from(life: LifeStory) -> str:
    if life.from_step is None:
        return _UNKNOWN
    back = " (rewind)" if life.adoption is not None and life.adoption.rewind else ""
    return f"{life.from_step:,}{back}"


def _ending(life: LifeStory) -> str:
    outcome = life.outcome
    notice = any(event.event == "notice" and words(event, "kind") == "reclaim" for event in life.events)
    if outcome == "stopped" and notice:
        return "reclaimed, saved"
    return ENDINGS.get(outcome, outcome)


def _machine(life: LifeStory) -> str:
    return life.claim.identity.host if life.claim else _UNKNOWN


def _step(event: Event, name: str = "step") -> str:
    step = number(event, name)
    return "an unknown step" if step is None else f"step {int(step):,}"


def _seconds(event: Event, name: str = "seconds") -> str:
    seconds = number(event, name)
    return "unknown time" if seconds is None else duration_text(seconds)


def _bytes(event: Event, name: str) -> str:
    size = number(event, name)
    return "unknown size" if size is None else bytes_text(int(size))


def _restored(event: Event) -> str:
    pair = event.details.get("checkpoint")
    sound = isinstance(pair, list) and [type(part) for part in pair] == [int, int]
    which = f"step {pair[1]:,} of life {pair[0]}" if isinstance(pair, list) and sound else "a checkpoint"
    what = f"restored {which} from {words(event, 'source')}"
    return f"{what}: {_bytes(event, 'bytes')} in {_seconds(event)}"


def _notice(event: Event) -> str:
    what = "reclaim announced" if words(event, "kind") == "reclaim" else "early save asked for"
    left = number(event, "seconds_left")
    time = "" if left is None else f", {duration_text(left)} left" if left > 0 else ", no time left"
    return f"{what} by {words(event, 'source')}{time}"


def _ended(event: Event) -> str:
    if number(event, "step") is None:
        return f"{words(event, 'outcome')}: {words(event, 'message')}"
    saved = number(event, "checkpoints")
    count = (
        ""
        if saved is None
        else f": {count_text(int(saved), 'checkpoint')}, {_bytes(event, 'bytes_sent')} sent"
    )
    why = words(event, "message")
    return f"{words(event, 'outcome')} at {_step(event)} after {_seconds(event)}{count}{why and f': {why}'}"


def _crashed(event: Event) -> str:
    why = words(event, "message") or words(event, "how")
    return f"the command crashed at {_step(event)} ({why}); started again"


_SENTENCES: dict[str, Callable[[Event], str]] = {
    "started": lambda event: f"agent started ({words(event, 'mode')})",
    "taken-over": lambda event: f"a new agent took over the trainer ({words(event, 'mode')})",
    "found": lambda event: f"{_step(event)} was still in memory",
    "fresh": lambda event: "nothing to resume from",
    "restored": _restored,
    "training": lambda event: f"training from {_step(event)}, {_seconds(event)} after the start",
    "crashed": _crashed,
    "notice": _notice,
    "plan": lambda event: words(event, "text"),
    "save-failed": lambda event: f"{_step(event)} was not saved: {words(event, 'message')}",
    "superseded": lambda event: words(event, "message"),
    "ended": _ended,
}
