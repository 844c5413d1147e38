"""What every source of notices is."""

import threading
from typing import Protocol

from outlive_agent.notice import Tell


class Source(Protocol):
    """Runs in a thread of its own until ``closing`` is set. Never raises, and knows no guard."""

    @property
    def name(self) -> str: ...

    def run(self, tell: Tell, closing: threading.Event) -> None: ...
