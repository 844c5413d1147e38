"""The life that this process saves in: claimed at the first save, one a run however many writers it has."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from outlive.dcp.place import Place
from outlive.errors import Damaged, NotFound, StoreError
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import probe
from outlive.store.commit import LOOK_SECONDS, Committer
from outlive.store.layout import CheckpointId
from outlive.store.lives import Identity, adopt, claim
from outlive.store.manifest import Blob, Manifest, Part
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.placing import Placing
from outlive.store.survey import missing


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneOn:
    """What this process has loaded to go on from.

    ``rewound``: by its step, so that what is newer is abandoned on purpose. ``passed_over`` was found to be
    damaged on the way to it.
    """

    checkpoint: CheckpointId | None = None
    rewound: bool = False
    passed_over: frozenset[CheckpointId] = frozenset()


class Session:
    """What this process knows of one run. The coordinator claims; every rank remembers what it has sent."""

    def __init__(self, place: Place, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self.process = os.getpid()
        self.gone_on = GoneOn()
        self.committer: Committer | None = None
        self.known: dict[str, Blob] = {}
        """What need not be sent again, by content: see ``keep`` for why relying on it is safe."""
        self._known_from: CheckpointId | None = None
        self._look_at = clock() + LOOK_SECONDS
        self._clock = clock
        self.saves = 0
        """How many the coordinator has begun; elsewhere the number of the newest order."""
        self.sent_step = 0
        self.guard = threading.RLock()

    @property
    def store(self) -> ObjectStore:
        return self.place.open()

    def begin(self) -> Committer:
        """The committer of this life, which is claimed now if it was not yet. For the coordinator."""
        with self.guard:
            if self.committer is None:
                self.committer = self._claimed()
            return self.committer

    def _claimed(self) -> Committer:
        store, run = self.store, self.place.run
        probe(store)
        life = claim(store, run, identity=Identity.here(sys.orig_argv))
        begun = self.gone_on.checkpoint
        newest = next((c for c in checkpoints(store, run) if c not in self.gone_on.passed_over), None)
        if begun is not None and newest != begun and not self.gone_on.rewound:
            raise StoreError(
                f"run {run} in {store.location} is at {newest}, and this process went on from {begun}",
                hint="another one has saved meanwhile: start again, so that the newest one is loaded; "
                "to go back on purpose, load that step by its number",
            )
        adopt(store, life, begun, rewind=self.gone_on.rewound)
        parent = None if begun is None else read_manifest(store, run, begun)
        return Committer(store, life, parent=parent)

    def prepare(self, parent: CheckpointId | None) -> None:
        """Before a save: learn what the checkpoint holds that this life went on from, and what is gone."""
        with self.guard:
            if parent is not None and parent != self._known_from:
                self._known_from = parent
                with suppress(Damaged, NotFound):  # then all is sent
                    self.known = {
                        **_by_content(read_manifest(self.store, self.place.run, parent)),
                        **self.known,
                    }
            if self._clock() >= self._look_at:
                self._look_at = self._clock() + LOOK_SECONDS
                gone = missing(self.store, self.place.run, list(self.known.values()))
                self.known = {key: blob for key, blob in self.known.items() if blob not in gone}

    def placing(self, own: CheckpointId) -> Placing:
        """What sends under the name of this checkpoint."""
        return Placing(self.store, self.place.run, own, known=self.known, guard=self.guard)

    def keep(self, part: Part) -> None:
        """After a part was sent: rely on what it names, and on nothing older.

        If its checkpoint is committed that is what the newest one names. If not, each of its objects is named
        by the newest that was, or lies under a later name than that one's: a remover spares both.
        """
        with self.guard:
            self.known = _by_content(part)


def _by_content(holder: Manifest | Part) -> dict[str, Blob]:
    return {blob.blake3: blob for blob in holder.blobs()}


_sessions: dict[tuple[str, str], Session] = {}
"""By the store's own name, which is the same however the script wrote it, and the run."""
_guard = threading.Lock()


def session_of(place: Place) -> Session:
    """The session of this process for that run: a training makes a writer for each save, and has one life."""
    key = place.open().location, place.run
    with _guard:
        known = _sessions.get(key)
        if known is None or known.process != os.getpid():
            known = _sessions[key] = Session(place)
        return known
