"""Checks run side by side, and the whole ends by its deadline whatever a server does."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from outlive.errors import OutliveError
from outlive_agent.units import duration_text

T = TypeVar("T")
_SLICE_SECONDS = 0.1
Tell = Callable[[str], None]
"""Told what is being looked at now."""


class TooLate(OutliveError):
    """The time for all checks is over."""


class Together:
    """Starts checks in threads of their own and waits for each no longer than the deadline.

    Daemon threads, not a pool: the interpreter would wait at its end for a pool's thread that hangs in a
    connection, and a dead store must not hold up the answer.
    """

    def __init__(self, seconds: float, tell: Tell) -> None:
        self._began = time.monotonic()
        self._seconds = seconds
        self._tell = tell
        self._guard = threading.Lock()
        self._busy: list[str] = []

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return max(0.0, self._seconds - self.spent)

    def begin(self, name: str, work: Callable[[], T]) -> "Future[T]":
        """Do ``work`` beside everything else."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # whoever waits for the answer gets it, not the thread
                future.set_exception(error)
            finally:
                self._now(name, busy=False)

        self._now(name, busy=True)
        threading.Thread(target=run, name=f"doctor-{name}", daemon=True).start()
        return future

    def result(self, future: "Future[T]") -> T:
        """What came out. ``TooLate`` when the time is over."""
        while not future.done():
            if not self.left:
                late = f"no answer within {duration_text(self._seconds)}"
                raise TooLate(late, hint="try again, or give it longer: --within 60s")
            # In slices: a Ctrl-C that another thread hears does not wake a long wait.
            wait([future], timeout=min(self.left, _SLICE_SECONDS))
        return future.result()

    def _now(self, name: str, *, busy: bool) -> None:
        with self._guard:
            if busy:
                self._busy.append(name)
            else:
                self._busy.remove(name)
            self._tell(", ".join(self._busy))
