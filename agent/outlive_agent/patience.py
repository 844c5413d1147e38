"""A store that is tried again and again says so, without a line for every attempt."""

import threading
import time

from outlive.objects.retry import Retry
from outlive_agent.journal import Journal

QUIET_SECONDS = 30.0
FIRST_TOLD_ATTEMPT = 2
"""One attempt that fails is nothing to tell: the next one mostly works."""


class Patience:
    """What :func:`outlive.objects.location.open_store` tells of its retries. For many threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._next = 0.0

    def __call__(self, retry: Retry) -> None:
        if retry.attempt < FIRST_TOLD_ATTEMPT:
            return
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + QUIET_SECONDS
        self._journal.problem(f"trying again after {retry.attempt} attempts", retry.error)
