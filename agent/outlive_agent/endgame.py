"""The stop that somebody asked for: when it comes, and how long the trainer is waited for. Arithmetic."""

from dataclasses import dataclass, field
from typing import Literal

from outlive_agent import planner
from outlive_agent.measured import Figures
from outlive_agent.planner import Action, Plan
from outlive_agent.verdict import Cause

GOES_ON: frozenset[Action] = frozenset({"save and go on", "go on"})
STOPS: frozenset[Action] = frozenset({"save and stop", "nothing fits"})
"""Decided for good: the trainer is asked to stop in the same breath."""
SIGNAL = "signal"
"""As the id of a notice."""
KILL_AFTER_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""


@dataclass(slots=True)
class EndGame:
    """All times are seconds on CLOCK_MONOTONIC."""

    grace_seconds: float
    window_seconds: float | None = None
    """How long whoever sends SIGTERM waits before SIGKILL, where that is known."""
    cause: Cause | None = None
    plan: Plan | None = None
    """What is being done about the notices that stand, until the trainer is asked to stop."""
    asked_at: float | None = None
    """The trainer was asked to stop."""
    _terminated_at: float | None = None
    _killed: bool = False
    _deadlines: dict[str, float | None] = field(default_factory=dict)
    """Of every notice that stands, by its id; None where it is not known."""

    @property
    def stopping(self) -> bool:
        """Whether the trainer has been asked to stop."""
        return self.asked_at is not None

    @property
    def deadline(self) -> float | None:
        """The earliest that is known."""
        return min((at for at in self._deadlines.values() if at is not None), default=None)

    @property
    def hard(self) -> bool:
        """Whether the earliest deadline is that of a SIGKILL."""
        return self.deadline is not None and self._deadlines.get(SIGNAL) == self.deadline

    @property
    def stop_at(self) -> float | None:
        """A stop is planned for then, and the trainer trains on until then."""
        return None if self.plan is None or self.stopping else self.plan.stop_at

    def noticed(self, notice: str, *, deadline: float | None, now: float, figures: Figures) -> Plan:
        """One more notice. The plan is for the earliest deadline of all that stand."""
        self._deadlines[notice] = deadline
        unknown = None in self._deadlines.values()
        covered = self.plan is not None and not unknown
        self.plan = planner.plan(now, None if unknown else self.deadline, figures, covered=covered)
        return self.plan

    def replan(self, now: float, figures: Figures) -> Plan | None:
        """The figures have changed. The new plan if something else is to be done now."""
        before, deadline = self.plan, self.deadline
        if before is None or deadline is None or self.stopping or before.action in STOPS:
            return None
        self.plan = planner.plan(now, deadline, figures, covered=True)
        same = before.action == self.plan.action or {before.action, self.plan.action} <= GOES_ON
        return None if same else self.plan

    def signalled(self, now: float, figures: Figures) -> planner.Need | None:
        """Somebody sent SIGTERM. What a last save needs, if it is known how much time is left."""
        if self.window_seconds is None:
            return None
        self._deadlines[SIGNAL] = now + self.window_seconds
        return planner.needed(figures)

    def call_off(self, notice: str) -> bool:
        """This notice no longer stands. True if another one does, for which there must be a new plan."""
        self._deadlines.pop(notice, None)
        if not self._deadlines:
            self.plan = None
        return bool(self._deadlines)

    def ask(self, cause: Cause | None, now: float) -> None:
        """The trainer is being asked to stop now."""
        self.cause = self.cause or cause
        if self.asked_at is None:
            self.asked_at = now

    def hurry(self, now: float, *, at_once: bool) -> None:
        """Somebody will not wait for the trainer any longer: SIGTERM now, or SIGKILL ``at_once``."""
        self.asked_at = now - self.grace_seconds
        if at_once:
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
