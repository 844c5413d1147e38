"""What a check has found: how grave, what was seen, what to change. And all of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from outlive.errors import OutliveError

Level: TypeAlias = Literal["ok", "warning", "problem"]
Figure: TypeAlias = "int | float | str | bool | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``check`` is a name that scripts may rely on. ``change`` is empty where nothing need be done.

    warning: the promise holds, but for what ``seen`` says. problem: it doesn't hold.
    """

    check: str
    level: Level
    seen: str
    change: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, in the order in which they are told."""

    findings: Sequence[Finding]
    not_checked: Sequence[str]
    """Checks that had no chance, since another one failed or the time was over."""
    seconds: float

    @property
    def level(self) -> Level:
        """The gravest."""
        levels = {finding.level for finding in self.findings}
        return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)


def ok(check: str, seen: str, **figures: Figure) -> Finding:
    """All is well."""
    return Finding(check=check, level="ok", seen=seen, figures=figures)


def warning(check: str, seen: str, *, change: str, **figures: Figure) -> Finding:
    """The promise holds, with a limit."""
    return Finding(check=check, level="warning", seen=seen, change=change, figures=figures)


def problem(check: str, seen: str, *, change: str, **figures: Figure) -> Finding:
    """The promise doesn't hold."""
    return Finding(check=check, level="problem", seen=seen, change=change, figures=figures)


def failed(check: str, error: OutliveError, *, doing: str = "", location: str = "") -> Finding:
    """A check that met an error. The store's name stands above the table already, so it is left out here."""
    text = str(error).removeprefix(f"{location}: ") if location else str(error)
    return problem(check, f"{doing}: {text}" if doing else text, change=error.hint)
