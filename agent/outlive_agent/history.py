"""What happened to this life, written into the store in order, without ever holding anything up."""

import threading
from queue import SimpleQueue

from outlive.errors import OutliveError
from outlive.objects.interface import ObjectStore
from outlive.store.document import Json
from outlive.store.events import EventLog
from outlive.store.lives import Life
from outlive_agent.journal import Journal
from outlive_agent.story import REACHED


class History:
    """Events are queued and written by one thread. A store that can't be reached costs a warning, no more."""

    def __init__(self, store: ObjectStore, life: Life, *, journal: Journal) -> None:
        self._store = store
        self._log = EventLog(store, life)
        self._journal = journal
        self._queue: SimpleQueue[tuple[str, dict[str, Json]] | None] = SimpleQueue()
        self._warned = False
        self._thread = threading.Thread(target=self._write_all, name="history", daemon=True)
        self._thread.start()

    def record(self, event: str, **figures: Json) -> None:
        """``event`` happened just now."""
        self._queue.put((event, figures))

    def reached(self, **figures: Json) -> None:
        """How far the training is. Takes the place of the last one, so that a long life leaves one only."""
        self._queue.put((REACHED, figures))

    def close(self, *, timeout: float) -> None:
        """Write what is queued, for at most so many seconds."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _write_all(self) -> None:
        before = ""
        while (item := self._queue.get()) is not None:
            event, figures = item
            try:
                key = self._log.write(event, **figures)
                if event == REACHED:
                    # Nothing is overwritten: the new one is there before the old one goes.
                    before, last = key, before
                    if last:
                        self._store.delete([last])
            except OutliveError as error:
                if not self._warned:
                    self._journal.problem("the run's history could not be written", error)
                self._warned = True
