"""Slurm: the end of the job's time, which it has in its environment from the start."""

import threading
import time
from collections.abc import Callable, Mapping

from outlive_agent.notice import Notice, Tell

LEAD_SECONDS = 3600.0
"""How long before the end it is told: nobody plans a last save for tomorrow."""


class Slurm:
    """One notice a job, from ``SLURM_JOB_END_TIME``. Older versions don't set it; SIGTERM must do then."""

    name = "slurm"

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        text = environ.get("SLURM_JOB_END_TIME", "")
        self._job = environ.get("SLURM_JOB_ID", "")[:40]
        self._ends = float(text) if text.isdecimal() and len(text) < 12 else None
        self._clock = clock
        self._wall = wall

    def run(self, tell: Tell, closing: threading.Event) -> None:
        """Wait until the end is near, then say so."""
        while (wait := self.wait()) is not None:
            if closing.wait(wait):
                return
            if self.wait() == 0:
                tell(self.notice())
                return

    def wait(self) -> float | None:
        """How long until it is time to tell; None if there is nothing to tell."""
        if self._ends is None:
            return None
        left = self._ends - self._wall()
        return None if left <= 0 else max(0.0, min(left - LEAD_SECONDS, LEAD_SECONDS))

    def notice(self) -> Notice:
        """The job's time ends."""
        now = self._clock()
        ends = self._ends or 0.0
        return Notice(
            kind="reclaim",
            deadline=now + ends - self._wall(),
            source=self.name,
            id=f"slurm:{self._job}@{ends:.0f}",
            received_at=now,
        )
