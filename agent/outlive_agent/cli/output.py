"""What the reading verbs print: tables and facts for people, one JSON document for programs.

A terminal's width is kept to; a pipe gets whole lines. Colours only on a terminal. Plain ASCII where the
locale is not UTF-8. Text from a store can never steer the terminal.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from outlive_agent.units import ago_text, time_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_WIDE = 500
_ASCII = str.maketrans({"…": "...", "→": "->", "·": "-"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table. ``priority`` 0 always stays; the higher, the sooner it goes."""

    title: str
    right: bool = False
    priority: int = 0
    style: str = ""


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints for one verb; ``now`` is the moment that all relative times refer to."""

    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _console: "Console | None" = None

    @property
    def console(self) -> "Console":
        if self._console is None:
            from rich.console import Console  # late: rich costs a tenth of a second, --json does without

            terminal = sys.stdout.isatty()
            width = None if terminal else _WIDE
            self._console = Console(width=width, highlight=False, markup=False, emoji=False)
        return self._console

    def say(self, text: str = "", *, style: str = "") -> None:
        """One line, or several."""
        self._print(self.plain(text), style=style or None)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """A table; columns that don't fit the terminal go, the least important first."""
        cells = [[self.plain(str(cell)) for cell in row] for row in rows]
        kept = _fitting(columns, cells, self.console.width)
        self._print(_rich_table(columns, cells, kept))

    def facts(self, pairs: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
        """Names and values, one a line, values aligned; a long value goes on below its beginning."""
        from rich.padding import Padding
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(name, self.plain(value))
        self._print(Padding(table, (0, 0, 0, indent)))

    def _print(self, what: "RenderableType", *, style: str | None = None) -> None:
        """Without the blanks that rich puts at the ends of lines."""
        with self.console.capture() as captured:
            self.console.print(what, style=style)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()) or "\n")

    def moment(self, moment: datetime) -> str:
        """``2026-11-30 23:42 UTC, 5 min ago``"""
        return f"{time_text(moment)}, {ago_text(moment, self.now)}"

    def age(self, moment: datetime) -> str:
        """``5 min``, for a column called AGO."""
        return ago_text(moment, self.now).removesuffix(" ago").removeprefix("just ")

    def plain(self, text: str) -> str:
        """Without what could steer a terminal, and in the characters it has."""
        return printable(text, unicode=_unicode())


def printable(text: str, *, unicode: bool) -> str:
    """``text`` with control characters shown as ``?``; in ASCII where the locale has no more."""
    safe = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return safe if unicode else safe.translate(_ASCII).encode("ascii", "replace").decode()


def emit_json(document: Mapping[str, object]) -> None:
    """One JSON document on stdout, in ASCII, for any locale."""
    print(json.dumps(document, indent=2))


def count_text(count: int, one: str, many: str = "") -> str:
    """``1 run``, ``3 runs``, ``1,204 steps``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf8")


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The indexes of the columns that fit: each as wide as its longest cell, two blanks between."""
    kept = list(range(len(columns)))
    wide = [max([len(columns[i].title), *(len(row[i]) for row in cells)]) for i in kept]
    while sum(wide[i] + 2 for i in kept) - 2 > width:
        least = max(kept, key=lambda i: (columns[i].priority, i))
        if columns[least].priority == 0:
            break
        kept.remove(least)
    return kept


def _rich_table(columns: Sequence[Column], cells: Sequence[Sequence[str]], kept: Sequence[int]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for i in kept:
        table.add_column(
            columns[i].title,
            justify="right" if columns[i].right else "left",
            style=columns[i].style,
            overflow="fold" if columns[i].priority == 0 else "ellipsis",
            no_wrap=columns[i].priority > 0,
        )
    for row in cells:
        table.add_row(*(row[i] for i in kept))
    return table
