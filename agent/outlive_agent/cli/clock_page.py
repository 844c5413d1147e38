"""How ``outlive history --clock`` tells what each change of machines took."""

from collections.abc import Sequence

from outlive_agent.cli.output import Column, Printer
from outlive_agent.clock import Recovery, goodput, recoveries
from outlive_agent.story import LifeStory
from outlive_agent.units import bytes_text, duration_text

_COLUMNS = (
    Column(title="LIFE", right=True),
    Column(title="NOTICE TO SAVED", right=True, priority=1),
    Column(title="AWAY", right=True),
    Column(title="BOOT TO AGENT", right=True),
    Column(title="TO RESTORED", right=True),
    Column(title="TO FIRST STEP", right=True),
    Column(title="LOST", right=True),
    Column(title="MOVED", right=True, priority=2),
)


def print_clock(printer: Printer, story: Sequence[LifeStory]) -> None:
    """A line a life, and the sum."""
    printer.table(_COLUMNS, [_row(found) for found in recoveries(story)])
    part = goodput(story)
    if part is not None:
        printer.say()
        printer.say(f"goodput {part:.0%}: time in steps that survived, of the time that machines were there")


def clock_json(story: Sequence[LifeStory]) -> dict[str, object]:
    """The same for programs."""
    names = Recovery.__dataclass_fields__
    lives = [{name: getattr(found, name) for name in names} for found in recoveries(story)]
    return {"recoveries": lives, "goodput": goodput(story)}


def _row(found: Recovery) -> list[str]:
    durations = (
        found.notice_to_saved,
        found.away,
        found.boot_to_agent,
        found.agent_to_restored,
        found.agent_to_first_step,
    )
    return [
        str(found.life),
        *("" if seconds is None else duration_text(seconds) for seconds in durations),
        "" if found.steps_lost is None else f"{found.steps_lost:,}",
        "" if found.bytes is None else bytes_text(found.bytes),
    ]
