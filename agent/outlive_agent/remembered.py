"""What was announced on this machine since it booted, and whether it was acted on, for the agents to come."""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from outlive_agent.notice import Notice

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST = 64
_AT_MOST = 1 << 16
STALE_SECONDS = 300.0
"""A deadline that lies further back did not come true."""


class Remembered:
    """Kept in the runtime directory. Losing it means that an announcement is acted on twice, no more.

    Times on CLOCK_MONOTONIC hold for every process until the next boot, and so does this file.
    """

    def __init__(self, path: Path, *, boot: str | None = None) -> None:
        self._path = path
        self._boot = boot_id() if boot is None else boot
        self._lock = threading.Lock()
        self._notices: dict[str, tuple[Notice, bool]] = self._read()

    def acted_on(self, notice: Notice) -> bool:
        """Whether an earlier agent has seen this one through."""
        with self._lock:
            return self._notices.get(notice.id, (notice, False))[1]

    def standing(self, now: float) -> Sequence[Notice]:
        """Reclaims that nobody has seen through."""
        with self._lock:
            return [
                notice
                for notice, done in self._notices.values()
                if not done and (notice.deadline is None or notice.deadline > now - STALE_SECONDS)
            ]

    def done(self) -> Sequence[Notice]:
        """What an earlier agent has seen through."""
        with self._lock:
            return [notice for notice, done in self._notices.values() if done]

    def add(self, notice: Notice) -> None:
        """It was told. An early save that was asked for is as good as made."""
        with self._lock:
            self._notices[notice.id] = (notice, notice.kind == "hint")
            self._write()

    def forget(self, known: str) -> None:
        """It was called off; should it come back, it is news."""
        with self._lock:
            if self._notices.pop(known, None) is not None:
                self._write()

    def settle(self) -> None:
        """Everything that was told has been acted on, and is saved."""
        with self._lock:
            self._notices = {known: (notice, True) for known, (notice, _) in self._notices.items()}
            self._write()

    def _write(self) -> None:
        newest = list(self._notices.items())[-_MOST:]
        document = {
            "boot": self._boot,
            "notices": [
                {
                    "kind": notice.kind,
                    "deadline": notice.deadline,
                    "source": notice.source,
                    "id": known,
                    "received_at": notice.received_at,
                    "done": done,
                }
                for known, (notice, done) in newest
            ],
        }
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk must not cost the run
            draft.write_text(json.dumps(document), encoding="utf-8")
            draft.replace(self._path)

    def _read(self) -> dict[str, tuple[Notice, bool]]:
        try:
            with self._path.open("rb") as file:
                document = json.loads(file.read(_AT_MOST))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(document, Mapping) or document.get("boot") != self._boot or not self._boot:
            return {}
        entries = document.get("notices")
        found = [_entry(entry) for entry in (entries if isinstance(entries, list) else [])]
        return {entry[0].id: entry for entry in found if entry is not None}


def _entry(entry: object) -> tuple[Notice, bool] | None:
    if not isinstance(entry, Mapping):
        return None
    kind, deadline, source = entry.get("kind"), entry.get("deadline"), entry.get("source")
    known, received_at, done = entry.get("id"), entry.get("received_at"), entry.get("done")
    if kind not in {"reclaim", "hint"} or not isinstance(known, str) or not isinstance(source, str):
        return None
    if not isinstance(received_at, int | float) or not isinstance(done, bool):
        return None
    if deadline is not None and not isinstance(deadline, int | float):
        return None
    notice = Notice(
        kind="hint" if kind == "hint" else "reclaim",
        deadline=deadline,
        source=source,
        id=known,
        received_at=received_at,
    )
    return notice, done


def boot_id() -> str:
    """Which boot of this machine it is; "" where that can't be known."""
    try:
        return _BOOT.read_text().strip()
    except OSError:  # then nothing is remembered
        return ""
