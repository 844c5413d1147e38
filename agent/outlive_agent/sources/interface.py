"""What every source of notices is."""

import threading
from collections.abc import Callable
from typing import Protocol

from outlive_agent.notice import Notice


class Source(Protocol):
    """Runs in a thread of its own until ``closing`` is set. Never raises, and knows no guard."""

    @property
    def name(self) -> str: ...

    def run(self, tell: Callable[[Notice], None], closing: threading.Event) -> None: ...
