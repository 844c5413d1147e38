"""What happened to this life, written into the store in order, without ever holding anything up."""

import json
import threading
from datetime import datetime, timezone
from queue import SimpleQueue

from outlive.errors import AlreadyExists, OutliveError
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.lives import Life
from outlive_agent.journal import Journal
from outlive_agent.units import iso_text


class History:
    """Events are queued and written by one thread. A store that can't be reached costs a warning, no more."""

    def __init__(self, store: ObjectStore, life: Life, *, journal: Journal) -> None:
        self._store = store
        self._life = life
        self._journal = journal
        self._next = 1
        self._queue: SimpleQueue[dict[str, object] | None] = SimpleQueue()
        self._warned = False
        self._thread = threading.Thread(target=self._write_all, name="history", daemon=True)
        self._thread.start()

    def record(self, event: str, **figures: object) -> None:
        """``event`` happened just now. Figures are JSON values."""
        self._queue.put(
            {
                "format": "outlive/event",
                "version": 1,
                "life": self._life.number,
                "event": event,
                "at": iso_text(datetime.now(timezone.utc)),
                **figures,
            }
        )

    def close(self, *, timeout: float) -> None:
        """Write what is queued, for at most so many seconds."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _write_all(self) -> None:
        while (document := self._queue.get()) is not None:
            try:
                self._write(document)
            except OutliveError as error:
                if not self._warned:
                    self._journal.problem("the run's history could not be written", error)
                self._warned = True

    def _write(self, document: dict[str, object]) -> None:
        body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        while True:
            key = layout.history(
                self._life.run, self._life.number, sequence=self._next, event=str(document["event"])
            )
            self._next += 1
            try:
                self._store.put(key, body, create_only=True)
            except AlreadyExists:
                # Our own write whose answer was lost, or an event of the agent that this life had before us.
                if self._store.get(key, at_most=len(body) + (1 << 16)) != body:
                    continue
            return
