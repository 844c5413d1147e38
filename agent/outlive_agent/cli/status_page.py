"""How ``outlive status`` shows an agent: what it does now, what is safe, and what is wrong."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from outlive_agent.cli.output import Printer
from outlive_agent.status import Seen, Status
from outlive_agent.units import bytes_text, duration_text

_SILENT_SECONDS = 30
_MOST_GONE = 5


def print_status(printer: Printer, agents: Sequence[Seen], *, run: str | None) -> None:
    """Those that live; those that went without a word; or that there is none."""
    living = [seen.status for seen in agents if seen.alive]
    gone = sorted(
        (seen for seen in agents if not seen.alive), key=lambda seen: seen.status.written_at, reverse=True
    )
    for number, agent in enumerate(living):
        if number:
            printer.say()
        _print_one(printer, agent)
    if living and gone:
        printer.say()
    for seen in gone[:_MOST_GONE]:
        _print_gone(printer, seen)
    if len(gone) > _MOST_GONE:
        printer.say(f"and {len(gone) - _MOST_GONE:,} more, all seen before these")
    if not living and not gone:
        what = "No agent is running here" if run is None else f"No agent of {run} is running here"
        printer.say(f"{what}. Begin with: outlive exec -- python train.py")


def status_json(seen: Seen) -> dict[str, object]:
    """The same for programs: the status file's own members, and whether the process exists."""
    return {**asdict(seen.status), "alive": seen.alive}


def _print_gone(printer: Printer, seen: Seen) -> None:
    agent = seen.status
    printer.say(f"{_title(agent)} is gone without a word: its agent was killed", style="yellow")
    facts = [("last seen", _when(printer, agent.written_at))]
    step = "" if agent.step is None else f"step {agent.step:,}, "
    saved = "nothing" if agent.saved_step is None else f"step {agent.saved_step:,}"
    facts.append(("reached", f"{step}{saved} is saved"))
    if seen.trains:
        facts.append(("training", f"pid {agent.trainer_pid} still runs: it saves and stops at its next step"))
    facts += [("store", agent.store), ("go on", "start it again, in the same way")]
    printer.facts(facts)


def _print_one(printer: Printer, agent: Status) -> None:
    printer.say(f"{_title(agent)} is {agent.phase}", style="bold")
    facts: list[tuple[str, str]] = []
    if agent.step is not None:
        epoch = "" if agent.epoch is None else f" of epoch {agent.epoch}"
        pace = "" if agent.step_seconds is None else f", {duration_text(agent.step_seconds)} a step"
        facts.append(("step", f"{agent.step:,}{epoch}{pace}"))
    facts.append(("saved", _saved(printer, agent)))
    if agent.sending_step is not None:
        facts.append(("sending", _sending(agent)))
    if agent.resumed_from is not None:
        facts.append(("resumed", f"from step {agent.resumed_from[1]:,} of life {agent.resumed_from[0]}"))
    if agent.notice is not None:
        deadline = "" if agent.deadline is None else f": {_when(printer, agent.deadline)}"
        facts.append(("notice", f"from {agent.notice}{deadline}"))
    if agent.problem is not None:
        facts.append(("problem", agent.problem))
    facts.append(("store", agent.store))
    trainer = "" if agent.trainer_pid is None else f", trains as pid {agent.trainer_pid}"
    facts.append(
        ("agent", f"{agent.mode}, pid {agent.pid}{trainer}, since {_when(printer, agent.started_at)}")
    )
    written = _moment(agent.written_at)
    if written is not None and (printer.now - written).total_seconds() > _SILENT_SECONDS:
        facts.append(("silent", f"its last word is of {_when(printer, agent.written_at)}"))
    printer.facts(facts)


def _title(agent: Status) -> str:
    return f"{agent.run}" if agent.life is None else f"{agent.run}, life {agent.life},"


def _saved(printer: Printer, agent: Status) -> str:
    every = "" if agent.interval is None else f"; {agent.interval}"
    if agent.saved_step is None:
        return f"nothing yet in this life{every}"
    text = f"step {agent.saved_step:,}"
    if agent.saved_bytes is not None:
        text += f", {bytes_text(agent.saved_bytes)}"
    if agent.saved_seconds is not None:
        text += f" in {duration_text(agent.saved_seconds)}"
    if agent.saved_at is not None:
        text += f", {_when(printer, agent.saved_at)}"
    return text + every


def _sending(agent: Status) -> str:
    text = f"step {agent.sending_step:,}"
    if agent.sent_bytes is None or not agent.sending_bytes:
        return text
    share = 100 * agent.sent_bytes // agent.sending_bytes
    return f"{text}, {bytes_text(agent.sent_bytes)} of {bytes_text(agent.sending_bytes)} ({share} %)"


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def _when(printer: Printer, text: str) -> str:
    moment = _moment(text)
    return text if moment is None or moment.tzinfo is None else printer.moment(moment)
