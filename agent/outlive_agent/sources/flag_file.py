"""A file that somebody creates: this machine goes away. It may hold how much time is left."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlive_agent.notice import Notice
from outlive_agent.units import parse_duration

POLL_SECONDS = 0.5
WINDOW_SECONDS = 30.0
"""What is assumed to be left where the file does not say."""
_AT_MOST = 100


class FlagFile:
    """``touch FILE`` or ``echo 2min > FILE``. A file that is older than the agent is history."""

    name = "flag-file"

    def __init__(self, path: Path, *, started_at: float | None = None) -> None:
        self._path = path
        self._started_at = time.time() if started_at is None else started_at

    def run(self, tell: Callable[[Notice], None], closing: threading.Event) -> None:
        """Look twice a second."""
        seen = ""
        while not closing.wait(POLL_SECONDS):
            notice = self.look()
            if notice is not None and notice.id != seen:
                seen = notice.id
                tell(notice)

    def look(self) -> Notice | None:
        """The notice that the file is, if it is there and new."""
        try:
            info = self._path.stat()
            if info.st_mtime < self._started_at - 1.0:
                return None
            with self._path.open("rb") as file:
                text = file.read(_AT_MOST).decode(errors="replace").strip()
        except OSError:
            return None
        now = time.monotonic()
        age = max(0.0, time.time() - info.st_mtime)
        return Notice(
            kind="reclaim",
            deadline=now + max(0.0, _window(text) - age),
            source=self.name,
            id=f"{self._path}:{info.st_mtime_ns}",
            received_at=now,
        )

    def handled(self) -> None:
        """Remove the file, so that nobody acts on it again."""
        with suppress(OSError):
            self._path.unlink()


def _window(text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError:
        return float(text) if text.isdecimal() and len(text) < 7 else WINDOW_SECONDS
