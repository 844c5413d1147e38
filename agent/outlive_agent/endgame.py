"""The stop that somebody asked for: when it comes, and how long the trainer is waited for. Arithmetic."""

from dataclasses import dataclass, field
from typing import Literal

from outlive_agent.verdict import Cause

KILL_AFTER_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""


@dataclass(slots=True)
class EndGame:
    """All times are seconds on CLOCK_MONOTONIC."""

    grace_seconds: float
    cause: Cause | None = None
    deadline: float | None = None
    stop_at: float | None = None
    """A stop is planned for then, and the trainer trains on until then."""
    asked_at: float | None = None
    """The trainer was asked to stop."""
    _terminated_at: float | None = None
    _killed: bool = False
    _deadlines: dict[str, float] = field(default_factory=dict)
    """Of every notice that stands, by its id."""

    @property
    def stopping(self) -> bool:
        """Whether the trainer has been asked to stop."""
        return self.asked_at is not None

    def plan(self, *, deadline: float, stop_at: float, notice: str = "") -> None:
        """A notice: stop then. An earlier plan gives way to a more urgent one only."""
        self._deadlines[notice] = deadline
        self.deadline = min(self._deadlines.values())
        self.stop_at = stop_at if self.stop_at is None else min(stop_at, self.stop_at)

    def replan(self, stop_at: float) -> None:
        """The figures have changed."""
        if self.stop_at is not None:
            self.stop_at = stop_at

    def call_off(self, notice: str) -> bool:
        """This notice no longer stands. True if another one does, for which there must be a new plan."""
        self._deadlines.pop(notice, None)
        self.deadline = min(self._deadlines.values(), default=None)
        if self.deadline is None:
            self.stop_at = None
        return self.deadline is not None

    def ask(self, cause: Cause | None, now: float) -> None:
        """The trainer is being asked to stop now."""
        self.cause = self.cause or cause
        self.stop_at = None
        if self.asked_at is None:
            self.asked_at = now

    def hurry(self, now: float) -> None:
        """Somebody will not wait for the trainer any longer."""
        self.asked_at = now - self.grace_seconds - KILL_AFTER_SECONDS
        self._terminated_at = now - KILL_AFTER_SECONDS

    def due(self, now: float) -> bool:
        """Whether the planned stop is due."""
        return self.stop_at is not None and now >= self.stop_at

    def escalate(self, now: float) -> Literal["terminate", "kill"] | None:
        """What to do about a trainer that was asked to stop and is still there; each answer comes once."""
        if self.asked_at is None or now < self.asked_at + self.grace_seconds:
            return None
        if self._terminated_at is None:
            self._terminated_at = now
            return "terminate"
        if not self._killed and now >= self._terminated_at + KILL_AFTER_SECONDS:
            self._killed = True
            return "kill"
        return None

    def next_at(self) -> float | None:
        """When something is due next."""
        if self.stop_at is not None:
            return self.stop_at
        if self.asked_at is None or self._killed:
            return None
        if self._terminated_at is None:
            return self.asked_at + self.grace_seconds
        return self._terminated_at + KILL_AFTER_SECONDS
