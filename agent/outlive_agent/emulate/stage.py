"""What the emulated provider has announced: set by hand in tests, by the clock in a rehearsal."""

import threading
from datetime import datetime, timedelta, timezone
from typing import Literal, TypeAlias

Then: TypeAlias = Literal["end", "cancel", "stay", "again"]


class Stage:
    """For many threads. ``kind`` chooses among what a provider can announce, such as ``hibernate``."""

    def __init__(self, *, kind: str = "") -> None:
        self.kind = kind
        self.changed = threading.Condition()
        self.version = 1
        self.deadline: datetime | None = None
        self.started = False
        self.over = False
        """The machine is gone, as the provider's API sees it."""
        self.approved: list[str] = []
        """Events that the guest approved of."""
        self.override: bytes | None = None
        """Said in place of what the provider would say, word for word."""

    @property
    def announced(self) -> bool:
        """Whether a reclaim stands announced."""
        return self.deadline is not None

    def announce(self, window_seconds: float) -> None:
        """The machine goes away in so many seconds."""
        with self.changed:
            self.deadline = datetime.now(timezone.utc) + timedelta(seconds=window_seconds)
            self._changed()

    def cancel(self) -> None:
        """It does not go away after all."""
        with self.changed:
            self.deadline, self.started = None, False
            self._changed()

    def start(self) -> None:
        """The time has come, or the guest approved."""
        with self.changed:
            self.started = True
            self._changed()

    def end(self) -> None:
        """The machine is gone."""
        with self.changed:
            self.over = True
            self._changed()

    def say(self, text: bytes | None) -> None:
        """Answer the question of notices with exactly this; None ends that."""
        with self.changed:
            self.override = text
            self._changed()

    def wait_change(self, version: int, *, seconds: float, closing: threading.Event) -> None:
        """Until something changed, so many seconds passed, or the server closes."""
        with self.changed:
            self.changed.wait_for(lambda: self.version != version or closing.is_set(), seconds)

    def play(self, *, notice_in: float, window: float, then: Then, closing: threading.Event) -> None:
        """The whole rehearsal by the clock."""
        if closing.wait(notice_in):
            return
        self.announce(window)
        if closing.wait(window):
            return
        if then == "end":
            self.start()
            self.end()
        elif then in {"cancel", "again"}:
            self.cancel()
            if then == "again" and not closing.wait(window):
                self.announce(window)

    def _changed(self) -> None:
        self.version += 1
        self.changed.notify_all()
