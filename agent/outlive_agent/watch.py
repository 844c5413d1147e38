"""What goes on beside a life, in threads of its own: sources of notices, removal of old checkpoints."""

import threading
from contextlib import suppress

from outlive.errors import OutliveError, Superseded
from outlive.store.commit import Committer
from outlive.store.lives import Life
from outlive_agent.events import Noticed, Post, SupersededSeen
from outlive_agent.job import Job, Place
from outlive_agent.notice import Notice
from outlive_agent.pruning import Pruning
from outlive_agent.sources.flag_file import FlagFile
from outlive_agent.sources.inbox import Inbox
from outlive_agent.sources.interface import Source


class Watch:
    """Begins with the life, ends with it."""

    def __init__(self, job: Job, place: Place, *, life: Life, post: Post) -> None:
        self._closing = threading.Event()
        self._heard = False
        self._post = post
        self._inbox = Inbox(
            place.store,
            life,
            superseded=self._superseded,
            journal=place.journal,
            requests=job.inbox,
        )
        self._flag_file = FlagFile(job.flag_file) if job.flag_file is not None else None
        self._pruning = Pruning(place.store, job.keep, journal=place.journal)
        sources: list[Source] = [self._inbox, *([self._flag_file] if self._flag_file else [])]
        for source in sources:
            threading.Thread(
                target=source.run, args=(self._tell, self._closing), name=source.name, daemon=True
            ).start()

    def prune(self, owner: Committer) -> None:
        """A commit was acknowledged: remove what the policy lets go."""
        self._pruning.after_commit(owner)

    def close(self) -> None:
        """Remove the requests that were acted on, so that the next life does not act on them again."""
        self._closing.set()
        if not self._heard:
            return
        if self._flag_file is not None:
            self._flag_file.handled()
        with suppress(OutliveError):  # the next life passes over what is older than itself
            self._inbox.handled()

    def _tell(self, notice: Notice) -> None:
        self._heard = True
        self._post(Noticed(notice=notice))

    def _superseded(self, error: Superseded) -> None:
        self._post(SupersededSeen(error=error))
