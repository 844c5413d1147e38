"""Content under one checkpoint's name: sent once, and not at all where what is known lies there already."""

from collections.abc import MutableMapping
from contextlib import AbstractContextManager

from outlive.objects.interface import Body, ObjectStore
from outlive.store import layout
from outlive.store.chunks import digest
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Blob


class Placing:
    """For one save, from many threads. ``known`` learns what was sent, also of a save that fails later.

    Who keeps ``known`` answers for it: docs/FORMAT.md, "Why leaving out a chunk is safe".
    """

    def __init__(
        self,
        store: ObjectStore,
        run: str,
        own: CheckpointId,
        *,
        known: MutableMapping[str, Blob],
        guard: "AbstractContextManager[object]",
    ) -> None:
        self._store = store
        self._run = run
        self._own = own
        self._known = known
        self._guard = guard
        self._under_way: set[str] = set()

    def place(self, content: Body) -> tuple[Blob, int]:
        """See that this content is in the store. Where it lies, and how many bytes had to be sent."""
        blob = Blob(blake3=digest(content), bytes=len(content), home=self._own)
        with self._guard:
            known = self._known.get(blob.blake3)
            # After a failed save and a restart further back, the known may lie under a later step's name.
            if known is not None and known.home <= self._own:
                return known, 0
            if blob.blake3 in self._under_way:
                return blob, 0
            self._under_way.add(blob.blake3)
        self._store.put(layout.chunk(self._run, self._own, blake3=blob.blake3), content)
        with self._guard:
            self._known[blob.blake3] = blob
        return blob, blob.bytes
