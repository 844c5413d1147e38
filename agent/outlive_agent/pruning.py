"""Old checkpoints go after an acknowledged commit, beside the training and never in its last minutes."""

import threading
import time

from outlive.errors import OutliveError, Superseded
from outlive.objects.interface import ObjectStore
from outlive.store.commit import Committer
from outlive.store.prune import prune
from outlive.store.retention import Keep
from outlive_agent.journal import Journal
from outlive_agent.units import bytes_text

PAUSE_SECONDS = 60.0
"""Between two passes: each reads every manifest there is."""


class Pruning:
    """At most one pass at a time, in a thread of its own. After a failure the next commit tries again."""

    def __init__(self, store: ObjectStore, keep: Keep, *, journal: Journal) -> None:
        self._store = store
        self._keep = keep
        self._journal = journal
        self._thread: threading.Thread | None = None
        self._next = 0.0
        self._warned = False
        self._said: set[str] = set()

    def after_commit(self, owner: Committer) -> None:
        """A commit was acknowledged. Called by one thread."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PAUSE_SECONDS
        self._thread = threading.Thread(target=self._pass, args=(owner,), name="prune", daemon=True)
        self._thread.start()

    def _pass(self, owner: Committer) -> None:
        try:
            plan = prune(self._store, owner.life.run, self._keep, owner=owner)
        except Superseded:
            return  # the inbox's poll says so too, and to somebody who acts on it
        except OutliveError as error:
            if not self._warned:
                self._journal.problem("old checkpoints can't be removed", error)
            self._warned = True
            return
        self._warned = False
        for note in plan.notes:
            if note not in self._said:
                self._journal.warning(f"old checkpoints: {note}")
        self._said |= set(plan.notes)
        if plan.checkpoints or plan.chunks:
            freed = f"{len(plan.chunks):,} chunks of {bytes_text(plan.chunk_bytes)}"
            self._journal.info(f"pruned {len(plan.checkpoints):,} old checkpoints, {freed}")
