"""How many transfers at once a store takes: found out as TCP does it, by going slower when it says so."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_REST_SECONDS = 1.0
"""Refusals within this time are one piece of news: they were sent before anyone went slower."""


class Congestion:
    """Lets ``most`` transfers run at first. A refusal halves that; as many successes as run now add one.

    All threads that use one store share it. It is told of each end, and never fails a transfer by itself.
    """

    def __init__(self, most: int, *, clock: Callable[[], float]) -> None:
        self._most = max(1, most)
        self._clock = clock
        self._running = 0
        self._successes = 0
        self._slower_at: float | None = None
        self._changed = threading.Condition()
        self.allowed = self._most
        """How many may run now."""

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for one's turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.allowed)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def succeeded(self) -> None:
        """A transfer went through."""
        with self._changed:
            self._successes += 1
            if self._successes >= self.allowed and self.allowed < self._most:
                self.allowed += 1
                self._successes = 0
                self._changed.notify_all()

    def refused(self) -> None:
        """The store said that this was too much."""
        with self._changed:
            now = self._clock()
            self._successes = 0
            if self._slower_at is None or now - self._slower_at >= _REST_SECONDS:
                self._slower_at = now
                self.allowed = max(1, self.allowed // 2)
