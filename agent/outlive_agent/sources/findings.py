"""Makes a notice of what a metadata server said: one rule for deadlines and for identity."""

import time
from collections.abc import Callable
from datetime import datetime

from outlive_agent.notice import Kind, Notice
from outlive_agent.sources.metadata_http import Answer
from outlive_agent.sources.times import seconds_until

STALE_SECONDS = 300.0
"""A time that lies further back did not come true: the machine is still here."""


class Findings:
    """Notices of one source. An id is made of what was said, so that repeats are recognised anywhere."""

    def __init__(self, source: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock

    def notice(self, kind: Kind, said: str, *, moment: datetime | None, answer: Answer) -> Notice | None:
        """None if it is history. Without a moment nothing is known to be left."""
        left = 0.0 if moment is None else seconds_until(moment, answer)
        if left < -STALE_SECONDS:
            return None
        return self.within(kind, said, seconds=left if moment is not None else None)

    def within(self, kind: Kind, said: str, *, seconds: float | None) -> Notice:
        """So many seconds are left."""
        now = self._clock()
        return Notice(
            kind=kind,
            deadline=None if seconds is None else now + seconds,
            source=self._source,
            id=f"{self._source}:{said}"[:200],
            received_at=now,
        )
