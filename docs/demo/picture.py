"""What the demo shows: the table of lives and the loss curve with the reclaims marked."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from lives import Life

WIDTH, HEIGHT = 68, 12
NAMES = {"notice": "notice, 5 s", "sigterm": "SIGTERM", "sigkill": "SIGKILL", "finished": "finished"}


def show_table(console: Console, lives: Sequence[Life]) -> None:
    """One row a life."""
    table = Table(title="One run, four lives", title_justify="left", title_style="bold")
    for heading in ("life", "how it ended", "steps", "steps lost", "last save", "recovery"):
        table.add_column(heading, justify="left" if heading == "how it ended" else "right")
    for number, life in enumerate(lives, 1):
        following = lives[number] if number < len(lives) else None
        lost = "-" if following is None else str(following.steps_lost)
        save = "-" if life.save_seconds is None else f"{life.save_seconds:.1f} s"
        steps = f"{life.from_step} to {life.to_step}"
        table.add_row(str(number), NAMES[life.ended], steps, lost, save, f"{life.recovery_seconds:.1f} s")
    console.print(table)


def show_curve(console: Console, losses: dict[int, float], reclaims: Sequence[tuple[int, str]]) -> None:
    """Mean loss for each column; ``reclaims`` are (step, ending), drawn as dotted lines."""
    last = max(losses)
    columns: list[list[float]] = [[] for _ in range(WIDTH)]
    for step, loss in losses.items():
        columns[min(WIDTH - 1, (step - 1) * WIDTH // last)].append(loss)
    means = [sum(column) / len(column) if column else None for column in columns]
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    marks = {min(WIDTH - 1, (step - 1) * WIDTH // last): ending for step, ending in reclaims}
    for column in marks:
        for row in grid:
            row[column] = ":"
    for column, mean in enumerate(means):
        if mean is not None:
            grid[round((high - mean) / max(high - low, 1e-9) * (HEIGHT - 1))][column] = "*"
    console.print("\n[bold]Loss by step[/bold]  (: = the machine was taken away)")
    for number, row in enumerate(grid):
        label = f"{high:5.2f}" if number == 0 else f"{low:5.2f}" if number == HEIGHT - 1 else " " * 5
        console.print(f"{label} |{''.join(row)}", markup=False, highlight=False)
    console.print(f"      +{'-' * WIDTH}", markup=False, highlight=False)
    console.print(f"      {_ticks(marks, last)}", markup=False, highlight=False)


def _ticks(marks: dict[int, str], last: int) -> str:
    """Step 1, the reclaims' names under their lines where they fit, the last step."""
    line = [" "] * (WIDTH + 1)
    for column, text in [
        (0, "1"),
        *sorted((c, e) for c, e in marks.items()),
        (WIDTH - len(str(last)), str(last)),
    ]:
        room = line[max(0, column - 1) : column + len(text) + 1]
        if all(character == " " for character in room) and column + len(text) <= WIDTH + 1:
            line[column : column + len(text)] = text
    return "".join(line)
