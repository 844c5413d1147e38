"""Says on stderr how far a long transfer is: a bar on a terminal, a quiet line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outlive_agent.units import bytes_text

_QUIET_SECONDS = 10.0


@contextmanager
def progress(
    what: str, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to be told bytes done and bytes in all."""
    if sys.stderr.isatty():
        with _bar(what) as tell:
            yield tell
    else:
        yield _Lines(what, clock)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console  # late: without a terminal nobody needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(file=sys.stderr)
    columns = (
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """One line every ten seconds, none for what is quick."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._what = what
        self._clock = clock
        self._said = clock()

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._said < _QUIET_SECONDS:
            return
        self._said = now
        share = 100 * done // max(total, 1)
        print(
            f"{self._what}: {bytes_text(done)} of {bytes_text(total)} ({share} %)",
            file=sys.stderr,
            flush=True,
        )
