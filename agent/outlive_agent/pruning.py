"""Old checkpoints go after an acknowledged commit, beside the training and never in its last minutes.

Where a save found the store full they go at once, also in the last minutes: it would stay full for a day.
"""

import threading
import time

from outlive.errors import OutliveError, Superseded
from outlive.objects.interface import ObjectStore
from outlive.store.commit import Committer
from outlive.store.lives import check_newest
from outlive.store.prune import Plan, prune
from outlive.store.retention import Keep
from outlive_agent.journal import Journal
from outlive_agent.units import bytes_text

WORTH_TELLING_BYTES = 1_000_000_000
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
        self._later_bytes = 0

    def after_commit(self, owner: Committer) -> None:
        """A commit was acknowledged. Called by one thread."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PAUSE_SECONDS
        self._thread = threading.Thread(target=self._pass, args=(owner,), name="prune", daemon=True)
        self._thread.start()

    def make_room(self, owner: Committer) -> None:
        """A save found the store full: what nobody needs goes now, and not a day later."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._room, args=(owner,), name="prune", daemon=True)
        self._thread.start()

    def finished(self, run: str) -> None:
        """The run is over, and nobody will remove anything any more: say what that leaves, if it is much."""
        if self._later_bytes >= WORTH_TELLING_BYTES:
            self._journal.notice(
                f"{bytes_text(self._later_bytes)} that no checkpoint needs stay in the store; "
                f"in a day's time remove them with: outlive prune {run} --yes"
            )

    def _pass(self, owner: Committer) -> None:
        self._remove(owner, full=False)

    def _room(self, owner: Committer) -> None:
        plan = self._remove(owner, full=True)
        if plan is not None and plan.checkpoints:  # the chunks of what went just now
            self._remove(owner, full=True)

    def _remove(self, owner: Committer, *, full: bool) -> Plan | None:
        by: Committer | None = owner
        try:
            if owner.acknowledged is None:  # too early for its own rules, but those for a hand hold
                check_newest(self._store, owner.life)
                by = None
            plan = prune(self._store, owner.life.run, self._keep, owner=by, full=full)
        except Superseded:
            return None  # the inbox's poll says so too, and to somebody who acts on it
        except OutliveError as error:
            if not self._warned:
                self._journal.problem("old checkpoints can't be removed", error)
            self._warned = True
            return None
        self._warned, self._later_bytes = False, plan.later_bytes
        for note in plan.notes:
            if note not in self._said:
                self._journal.warning(f"old checkpoints: {note}")
        self._said |= set(plan.notes)
        if plan.checkpoints or plan.chunks:
            freed = f"{len(plan.chunks):,} chunks of {bytes_text(plan.chunk_bytes)}"
            why = ", since the store is full" if full else ""
            self._journal.info(f"pruned {len(plan.checkpoints):,} old checkpoints, {freed}{why}")
        return plan
