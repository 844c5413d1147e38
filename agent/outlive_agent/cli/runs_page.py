"""How ``outlive ls`` shows the runs of a store: where each stands and how it ended."""

from collections.abc import Sequence

from outlive.store.runs import RunSummary
from outlive_agent.cli.output import Column, Printer
from outlive_agent.story import ENDINGS, outcome_of
from outlive_agent.units import bytes_text, iso_text

_COLUMNS = (
    Column(title="RUN", least=24, middle=True),
    Column(title="STEP", right=True),
    Column(title="SAVED"),
    Column(title="AGO", right=True, priority=1),
    Column(title="SIZE", right=True, priority=2),
    Column(title="KEPT", right=True, priority=4),
    Column(title="LIVES", right=True, priority=3),
    Column(title="LAST LIFE"),
    Column(title="MACHINE", priority=5, least=12),
)


def print_runs(printer: Printer, found: Sequence[RunSummary]) -> None:
    """A line a run."""
    printer.table(_COLUMNS, [_row(printer, summary) for summary in found])
    printer.say()


def run_json(summary: RunSummary) -> dict[str, object]:
    """The same for programs."""
    newest, claim = summary.newest, summary.last_claim
    return {
        "run": summary.run,
        "life": newest.life if newest else None,
        "step": newest.step if newest else None,
        "saved_at": iso_text(newest.created_at) if newest else None,
        "bytes": newest.total_bytes if newest else None,
        "checkpoints": summary.checkpoints,
        "abandoned": summary.abandoned,
        "lives": summary.lives,
        "last_life": outcome_of(summary.last_event) or "open",
        "host": claim.identity.host if claim else None,
        "began_at": iso_text(claim.claimed_at) if claim else None,
    }


def _row(printer: Printer, summary: RunSummary) -> list[str]:
    newest, claim = summary.newest, summary.last_claim
    outcome = outcome_of(summary.last_event) or "open"
    return [
        summary.run,
        f"{newest.step:,}" if newest else "",
        printer.day(newest.created_at) if newest else "nothing yet",
        printer.age(newest.created_at) if newest else "",
        bytes_text(newest.total_bytes) if newest else "",
        str(summary.checkpoints),
        str(summary.lives),
        ENDINGS.get(outcome, outcome),
        claim.identity.host if claim else "",
    ]
