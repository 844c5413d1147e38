"""Old checkpoints go after an acknowledged commit, beside the training and never in its last minutes."""

import threading

from outlive.store.lives import Life
from outlive.store.manifest import Manifest
from outlive_agent.job import Job, Place


class Pruning:
    """At most one pass at a time, in a thread of its own. After a failure the next commit tries again."""

    def __init__(self, job: Job, place: Place, *, life: Life, closing: threading.Event) -> None:
        self._job = job
        self._place = place
        self._life = life
        self._closing = closing

    def after(self, newest: Manifest) -> None:
        """A commit was acknowledged."""
