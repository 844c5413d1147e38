"""Turns accepted snapshots into checkpoints: one at a time, in place, the newest waiting first."""

import threading
import time

from outlive.errors import Cancelled, OutliveError, Superseded
from outlive.store.commit import Committer, Image, Snapshot
from outlive_agent.events import Event, Post, SupersededSeen, Uploaded, UploadFailed
from outlive_agent.held import Held
from outlive_agent.measured import Progress
from outlive_agent.shortage import shortage


class Uploader:
    """One thread that decides nothing: posts ``Uploaded``, ``UploadFailed`` or ``SupersededSeen``."""

    def __init__(self, committer: Committer, *, post: Post) -> None:
        self._committer = committer
        self._post = post
        self._changed = threading.Condition()
        self._waiting: Held | None = None
        self._current: Held | None = None
        self._drop = threading.Event()
        self._closed = False
        self._began = 0.0
        self._progress = (0, 0, 0)
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)
        self._thread.start()

    def submit(self, held: Held) -> Held | None:
        """Upload this one next. Returns an older one that was still waiting: it will not be uploaded."""
        with self._changed:
            replaced, self._waiting = self._waiting, held
            self._changed.notify()
            return replaced

    def drop_current(self) -> None:
        """Give up the upload under way, for a newer snapshot that could not finish after it."""
        self._drop.set()

    @property
    def pending(self) -> tuple[Held, ...]:
        """What is being uploaded, and what waits."""
        with self._changed:
            return tuple(held for held in (self._current, self._waiting) if held is not None)

    @property
    def progress(self) -> tuple[Held, Progress] | None:
        """What is being uploaded, and how far it is; None when idle."""
        with self._changed:
            if self._current is None:
                return None
            done, total, sent = self._progress
            seconds = time.monotonic() - self._began
            return self._current, Progress(done=done, total=total, sent=sent, seconds=seconds)

    def close(self) -> None:
        """Give up. What is under way is left without a manifest, so it never was."""
        with self._changed:
            self._closed = True
            self._drop.set()
            self._changed.notify()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while (held := self._take()) is not None:
            event = self._outcome(held)
            with self._changed:
                self._current = None
            self._post(event)
            # What is named here would keep an arena's memory until the next snapshot.
            del held, event

    def _take(self) -> Held | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            if self._closed:
                return None
            self._current, self._waiting = self._waiting, None
            self._drop.clear()
            self._began, self._progress = time.monotonic(), (0, 0, 0)
            return self._current

    def _outcome(self, held: Held) -> Event:
        try:
            committed = self._committer.commit(
                _snapshot(held), progress=self._advance, cancelled=self._drop.is_set
            )
        except Cancelled:
            return UploadFailed(held=held, error=None)
        except Superseded as error:
            return SupersededSeen(error=error)
        except OutliveError as error:
            return UploadFailed(held=held, error=error)
        except (MemoryError, OSError, RuntimeError) as error:  # saving never kills training
            short = shortage(error)
            if short is None:
                raise
            return UploadFailed(held=held, error=short)
        return Uploaded(held=held, committed=committed)

    def _advance(self, done: int, total: int, sent: int) -> None:
        with self._changed:
            self._progress = (done, total, sent)


def _snapshot(held: Held) -> Snapshot:
    return Snapshot(
        step=held.step,
        epoch=held.epoch,
        reason=held.reason,
        metrics=held.metrics,
        environment=held.environment,
        images=tuple(
            Image(
                table=part.table,
                values=part.values,
                image=held.arena.view[part.offset : part.offset + part.bytes],
            )
            for part in held.parts
        ),
    )
