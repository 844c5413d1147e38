"""The life that this process saves in: claimed at the first save, one a run however many writers it has."""

import os
import sys
import threading
from collections.abc import Mapping

from outlive.dcp.place import Place
from outlive.errors import Damaged, NotFound, StoreError
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import probe
from outlive.store.commit import Committer
from outlive.store.layout import CheckpointId
from outlive.store.lives import Identity, adopt, claim
from outlive.store.manifest import Blob, Manifest
from outlive.store.newest import checkpoints, read_manifest


class Session:
    """What this process knows of one run. The coordinator claims; every rank remembers what it has sent."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.process = os.getpid()
        self.loaded: CheckpointId | None = None
        """What was loaded here to go on from."""
        self.rewound = False
        """Whether that was asked for by its step, so that what is newer is abandoned on purpose."""
        self.committer: Committer | None = None
        self.known: dict[str, Blob] = {}
        """What need not be sent again, by content: this rank's own, or of the checkpoint gone on from."""
        self.known_from: CheckpointId | None = None
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
        newest = next(iter(checkpoints(store, run)), None)
        if self.loaded is not None and newest != self.loaded and not self.rewound:
            raise StoreError(
                f"run {run} in {store.location} is at {newest}, and this process went on from {self.loaded}",
                hint="another one has saved meanwhile: start again, so that the newest one is loaded; "
                "to go back on purpose, load that step by its number",
            )
        adopt(store, life, self.loaded, rewind=self.rewound)
        parent = None if self.loaded is None else read_manifest(store, run, self.loaded)
        return Committer(store, life, parent=parent)

    def know(self, parent: CheckpointId | None) -> None:
        """Learn what the checkpoint that this life went on from holds, before anything is sent."""
        with self.guard:
            if parent is None or parent == self.known_from:
                return
            self.known_from = parent
            try:
                manifest = read_manifest(self.store, self.place.run, parent)
            except (Damaged, NotFound):  # then all is sent
                return
            self.known = {**by_content(manifest), **self.known}


def by_content(manifest: Manifest) -> Mapping[str, Blob]:
    """Every object that a checkpoint names."""
    return {blob.blake3: blob for blob in manifest.blobs()}


_sessions: dict[Place, Session] = {}
_guard = threading.Lock()


def session_of(place: Place) -> Session:
    """The session of this process for that run: a training makes a writer for each save, and has one life."""
    with _guard:
        known = _sessions.get(place)
        if known is None or known.process != os.getpid():
            known = _sessions[place] = Session(place)
        return known
