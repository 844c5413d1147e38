"""The one place that writes for the person who watches: one event, one line, figures with their units."""

import os
import sys
import threading
from collections.abc import Mapping
from typing import TextIO

from outlive.errors import OutliveError
from outlive_agent.journald import Journald

_PRIORITIES = {"error": "<3>", "warning": "<4>", "notice": "<5>", "info": "<6>"}


class Journal:
    """Lines to stderr, with the word ``outlive`` in front, or a priority where systemd's journal listens.

    Safe to call from every thread.
    """

    def __init__(self, stream: TextIO, *, priorities: bool = False) -> None:
        self._stream = stream
        self._priorities = priorities
        self._lock = threading.Lock()
        self._silent = False
        self._fields: dict[str, str] = {}
        self._journald: Journald | None = None

    @classmethod
    def standard(cls, environ: Mapping[str, str]) -> "Journal":
        """The journal of this process."""
        return cls(sys.stderr, priorities=_is_journal(environ.get("JOURNAL_STREAM", "")))

    def about(self, *, run: str, life: int | None = None) -> None:
        """Lines carry this from now on where journald listens: ``journalctl OUTLIVE_RUN=gpt -o json``."""
        self._fields = {"OUTLIVE_RUN": run} | ({} if life is None else {"OUTLIVE_LIFE": str(life)})
        if self._priorities and self._journald is None:
            self._journald = Journald.connected()

    def silence(self) -> None:
        """The last word is said."""
        self._silent = True

    def info(self, text: str, *, step: int | None = None) -> None:
        """Something happened as it should."""
        self._write("info", text, step)

    def notice(self, text: str, *, step: int | None = None) -> None:
        """Something that a person would want to find again: a life's begin and end, a reclaim."""
        self._write("notice", text, step)

    def warning(self, text: str, *, hint: str = "", step: int | None = None) -> None:
        """Something is wrong, and training goes on."""
        self._write("warning", f"{text}; {hint}" if hint else text, step)

    def error(self, text: str, *, hint: str = "") -> None:
        """Something is wrong, and this life ends."""
        self._write("error", f"{text}; {hint}" if hint else text)

    def problem(self, what: str, error: OutliveError) -> None:
        """``what`` was not done because of ``error``, with what to do about it, in one line."""
        self.warning(f"{what}: {error}", hint=error.hint)

    def _write(self, level: str, text: str, step: int | None = None) -> None:
        if self._silent:
            return
        line = " ".join(text.split())  # one event, one line, whatever an error's text holds
        prefix = _PRIORITIES[level] if self._priorities else f"outlive: {'warning: ' * (level == 'warning')}"
        if level == "error" and not self._priorities:
            prefix = "outlive: error: "
        if self._journald is not None:
            fields = self._fields if step is None else {**self._fields, "OUTLIVE_STEP": str(step)}
            if self._journald.send(line, priority=_PRIORITIES[level][1], fields=fields):
                return
        with self._lock:
            try:
                self._stream.write(f"{prefix}{line}\n")
                self._stream.flush()
            except (OSError, ValueError):
                # A closed terminal must not take the run down with it; the history still tells the story.
                return


def step_text(step: int) -> str:
    """``step 1,200``"""
    return f"step {step:,}"


def _is_journal(stream: str) -> bool:
    """Whether systemd's JOURNAL_STREAM (device:inode) is this process's stderr, and not an ancestor's."""
    try:
        info = os.fstat(2)
    except OSError:
        return False
    return stream == f"{info.st_dev}:{info.st_ino}"
