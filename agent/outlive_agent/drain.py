"""How long the last save is waited for when nobody trains any more. Arithmetic on CLOCK_MONOTONIC."""

from collections.abc import Mapping

from outlive.errors import ConfigError
from outlive_agent.units import duration_text, parse_duration

STOP_WINDOW = "OUTLIVE_STOP_WINDOW"
"""How long whoever sends SIGTERM waits until it sends SIGKILL: a pod's terminationGracePeriodSeconds."""
STALLED_SECONDS = 60.0
"""An upload that stands still for so long is given up where no deadline is known: systemd waits no longer."""
QUIET_SECONDS = 10.0
"""After so long it is told when it will be given up."""
LATE_SECONDS = 5.0
"""The same once a deadline has passed: the machine still lives, and that is luck."""
RESERVE_SECONDS = 2.0
"""Kept of a deadline for the last words."""
HURRIED_SECONDS = 10.0
"""What a second SIGTERM leaves."""


def stop_window(environ: Mapping[str, str]) -> float | None:
    """Seconds, written as ``30`` or ``30s``; None where it is not told."""
    text = environ.get(STOP_WINDOW, "").strip()
    if not text:
        return None
    try:
        return float(text) if text.isdecimal() and len(text) < 7 else parse_duration(text).total_seconds()
    except ValueError as error:
        raise ConfigError(
            f"${STOP_WINDOW} is {text[:40]!r}, which is no duration",
            hint=f"write seconds or {error}; a pod's is its terminationGracePeriodSeconds",
        ) from None


class Drain:
    """``moved`` is anything that changes with the bytes that are in the store; None while none are."""

    def __init__(self) -> None:
        self._moved: object = None
        self._moved_at = 0.0
        self._began_at = 0.0
        self._hurried_until: float | None = None

    def observe(self, moved: object, now: float) -> None:
        """Look at how far the upload is."""
        if moved is not None and moved != self._moved:
            self._moved, self._moved_at = moved, now

    def begin(self, now: float) -> None:
        """Nobody trains from now on: patience counts from here."""
        self._began_at = now

    def quiet(self, now: float) -> bool:
        """Whether nothing has moved for so long that somebody should be told what will come of it."""
        return now >= max(self._began_at, self._moved_at) + QUIET_SECONDS

    def stalled(self, now: float) -> bool:
        """Whether nothing has moved for so long that systemd need not wait for it."""
        return now >= max(self._began_at, self._moved_at) + STALLED_SECONDS

    def hurry(self, now: float) -> bool:
        """Somebody will not wait much longer. False if somebody said so before."""
        if self._hurried_until is not None:
            return False
        self._hurried_until = now + HURRIED_SECONDS
        return True

    def until(self, deadline: float | None, *, hard: bool = False) -> float:
        """When the wait ends, if nothing moves from now on. ``hard``: the deadline is that of a SIGKILL."""
        end = max(self._began_at, self._moved_at) + STALLED_SECONDS
        if deadline is not None:
            end = deadline - RESERVE_SECONDS
            if self._moved_at > self._began_at or not hard:  # a notice's may be long over, and we live
                end = max(end, max(self._began_at, self._moved_at) + LATE_SECONDS)
        return end if self._hurried_until is None else min(end, self._hurried_until)

    def why(self, now: float, deadline: float | None, *, hard: bool = False) -> str:
        """Why it is over, or nothing as long as it isn't."""
        if now < self.until(deadline, hard=hard):
            return ""
        if self._hurried_until is not None and now >= self._hurried_until:
            return "no more time is left"
        if deadline is not None:
            return "the time that was announced is over"
        return f"nothing has reached the store for {duration_text(STALLED_SECONDS)}"
