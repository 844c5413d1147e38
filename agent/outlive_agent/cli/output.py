"""What the reading verbs print: tables and facts for people, one JSON document for programs.

A terminal's width is kept to; a pipe gets whole lines. Colours only on a terminal. Plain ASCII where the
locale is not UTF-8. Text from a store can never steer the terminal.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from outlive_agent.units import ago_text, time_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_WIDE = 10_000
_ASCII = str.maketrans({"…": "...", "→": "->", "·": "-"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table. ``priority`` 0 always stays; the higher, the sooner it goes.

    ``least``: its cells may be shortened to so many characters before any column goes (0: never), in the
    ``middle`` where their ends tell them apart.
    """

    title: str
    right: bool = False
    priority: int = 0
    least: int = 0
    middle: bool = False


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

    def command(self, text: str) -> None:
        """A command line to copy: on a line of its own, which nothing breaks."""
        sys.stdout.write(f"  {self.plain(text)}\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """A table no wider than the terminal: long cells are shortened, then whole columns go."""
        cells = [[self.plain(str(cell)) for cell in row] for row in rows]
        widths = _fitting(columns, cells, self.console.width)
        mark = "…" if _unicode() else "..."
        shortened = [
            [_shortened(row[i], width, mark=mark, middle=columns[i].middle) for i, width in widths.items()]
            for row in cells
        ]
        self._print(_rich_table([columns[i] for i in widths], shortened))

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

    def findings(self, rows: Sequence[tuple[str, str, str, str, str]]) -> None:
        """Level, its style, name, what was seen; and below that what to do, where there is something."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for level, style, name, seen, change in rows:
            table.add_row(Text(level, style=style), name, self.plain(seen))
            if change:
                table.add_row("", "", self.plain(f"Try: {change}"))
        self._print(table)

    def _print(self, what: "RenderableType", *, style: str | None = None) -> None:
        """Without the blanks that rich puts at the ends of lines."""
        with self.console.capture() as captured:
            self.console.print(what, style=style)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()) or "\n")

    def moment(self, moment: datetime) -> str:
        """``2026-11-30 23:42 UTC, 5 min ago``"""
        return f"{time_text(moment)}, {ago_text(moment, self.now)}"

    def day(self, moment: datetime) -> str:
        """For a column: on a terminal without the zone, which is the reader's own."""
        text = time_text(moment)
        return text.rpartition(" ")[0] if self.console.is_terminal else text

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


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """How wide each column is that fits, by its index; two blanks between. An empty one goes first."""
    wide = {
        i: max([len(column.title), *(len(row[i]) for row in cells)])
        for i, column in enumerate(columns)
        if width == _WIDE or not column.priority or any(row[i] for row in cells)
    }
    least = {
        i: max(len(column.title), min(wide[i], column.least)) if column.least else wide[i]
        for i, column in enumerate(columns)
        if i in wide
    }
    while sum(least[i] + 2 for i in wide) - 2 > width:
        going = max(wide, key=lambda i: (columns[i].priority, i))
        if columns[going].priority == 0:
            break
        del wide[going]
    over = sum(size + 2 for size in wide.values()) - 2 - width
    for i in sorted(wide, key=lambda i: (-columns[i].priority, -wide[i])):
        less = min(max(0, over), wide[i] - least[i])
        wide[i] -= less
        over -= less
    return wide


def _shortened(text: str, width: int, *, mark: str, middle: bool) -> str:
    if len(text) <= width:
        return text
    room = max(0, width - len(mark))
    tail = room // 2 if middle else 0
    return text[: room - tail] + mark + text[len(text) - tail :]


def _rich_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.title, justify=side, no_wrap=True, overflow="crop")
    for row in cells:
        table.add_row(*row)
    return table
