"""When the next save is due while nothing is wrong: the interval, and patience after a save that failed."""

from outlive_agent.measured import Figures
from outlive_agent.planner import interval_seconds
from outlive_agent.settings.values import Every
from outlive_agent.units import duration_text

FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 300.0


class Pace:
    """Pure arithmetic on the times it is told, in seconds on CLOCK_MONOTONIC."""

    def __init__(self, every: Every) -> None:
        self._every = every
        self._last: float | None = None
        self._saves = 0
        self._failures = 0
        self._retry_at: float | None = None

    @property
    def failures(self) -> int:
        """How many saves in a row failed."""
        return self._failures

    @property
    def retrying(self) -> bool:
        """Whether the last save failed, and the next one waits for its time."""
        return self._retry_at is not None

    @property
    def retry_at(self) -> float | None:
        """When a save that failed is tried again."""
        return self._retry_at

    def started(self, now: float) -> None:
        """A trainer has its state and trains on."""
        self._last = now

    def taken(self, now: float) -> None:
        """A snapshot was taken, for whatever reason: the interval counts from here."""
        self._last = now
        self._retry_at = None

    def saved(self) -> None:
        """A snapshot became a checkpoint."""
        self._saves += 1
        self._failures = 0
        self._retry_at = None

    def failed(self, now: float) -> float:
        """A snapshot did not become one. Returns after how many seconds the newest state is tried again."""
        delay = min(FIRST_RETRY_SECONDS * 2.0**self._failures, LONGEST_RETRY_SECONDS)
        self._failures += 1
        self._retry_at = now + delay
        return delay

    def due_at(self, figures: Figures) -> float | None:
        """When to ask for the next save; None where only steps count, or nobody trains."""
        if self._last is None:
            return None
        if self._retry_at is not None:
            return self._retry_at
        if self._every.steps is not None:
            return None
        return self._last + self.seconds(figures)

    def seconds(self, figures: Figures) -> float:
        """The interval that holds now."""
        if self._every.duration is not None:
            return self._every.duration.total_seconds()
        return interval_seconds(figures, saves=self._saves)

    def text(self, figures: Figures) -> str:
        """The interval in words."""
        if self._every.auto:
            return f"auto, now {duration_text(self.seconds(figures))}"
        return f"every {self._every}"
