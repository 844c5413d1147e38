"""What ``outlive doctor`` prints: one line a check with what to change below it, and a verdict at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from outlive_agent.cli.output import Printer, count_text
from outlive_agent.doctor.finding import Report
from outlive_agent.doctor.subject import Subject
from outlive_agent.units import duration_text

SCHEMA: Final = 1
"""Raised when a program that reads the document would have to change."""
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@contextmanager
def looking() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is waited for; gives a function to be told that."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console  # late: without a terminal nobody needs it

    with Console(file=sys.stderr).status("looking", spinner="line") as status:
        yield lambda what: status.update(f"looking at {what}" if what else "looking")


def print_report(printer: Printer, subject: Subject, report: Report) -> None:
    """The page."""
    who = f"run {subject.run} in " if subject.run else ""
    where = "this machine, " if subject.machine else "the job file, "
    printer.say(f"{where}{who}{subject.store.location}")
    printer.say()
    printer.findings(
        [
            (finding.level, _STYLES[finding.level], finding.check, finding.seen, finding.change)
            for finding in report.findings
        ]
    )
    printer.say()
    if report.not_checked:
        printer.say(f"Not checked: {', '.join(report.not_checked)}")
    printer.say(verdict(report), style=_STYLES[report.level])


def verdict(report: Report) -> str:
    """One line: whether the promise can be kept, and how much was looked at."""
    problems, warnings = report.count("problem"), report.count("warning")
    looked = f"{count_text(len(report.findings), 'check')} in {duration_text(report.seconds)}"
    if problems:
        more = f" and {count_text(warnings, 'warning')}" if warnings else ""
        return f"The promise can't be kept yet: {count_text(problems, 'problem')}{more} ({looked})"
    if warnings:
        return f"The promise can be kept, with {count_text(warnings, 'warning')} ({looked})"
    return f"The promise can be kept ({looked})"


def report_json(subject: Subject, report: Report) -> dict[str, object]:
    """docs/DOCTOR.md describes it."""
    return {
        "schema": SCHEMA,
        "verdict": report.level,
        "summary": verdict(report),
        "store": subject.store.location,
        "run": subject.run or None,
        "machine": subject.machine,
        "seconds": round(report.seconds, 3),
        "findings": [
            {
                "check": finding.check,
                "level": finding.level,
                "seen": finding.seen,
                "change": finding.change or None,
                "figures": dict(finding.figures),
            }
            for finding in report.findings
        ],
        "not_checked": list(report.not_checked),
    }
