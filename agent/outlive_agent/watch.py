"""What goes on beside a life, in threads of its own: sources of notices, removal of old checkpoints."""

import os
import threading
import time
from contextlib import suppress

from outlive.errors import OutliveError, Superseded
from outlive.store.commit import Committer
from outlive.store.lives import Life
from outlive_agent.events import CalledOff, Noticed, Post, SupersededSeen
from outlive_agent.job import Job, Place
from outlive_agent.notice import Notice, Withdrawn
from outlive_agent.pruning import Pruning
from outlive_agent.remembered import Remembered
from outlive_agent.sources.cloud import Cloud
from outlive_agent.sources.flag_file import FlagFile
from outlive_agent.sources.inbox import Inbox
from outlive_agent.sources.interface import Source

TIDY_SECONDS = 5.0


class Watch:
    """Begins with the life, ends with it."""

    def __init__(self, job: Job, place: Place, *, life: Life, post: Post) -> None:
        self._closing = threading.Event()
        self._heard = False
        self._post = post
        self._journal = place.journal
        self._remembered = Remembered(place.lock.path.with_suffix(".notices"))
        self._inbox = Inbox(
            place.store,
            life,
            superseded=self._superseded,
            journal=place.journal,
            requests=job.reclaim.inbox,
        )
        flag_file = job.reclaim.flag_file
        self._flag_file = FlagFile(flag_file) if flag_file is not None else None
        standing = self._remembered.standing(time.monotonic())
        for notice in standing:  # told to an agent that did not live to act on it
            self._tell(notice)
        self._cloud = Cloud(
            job.reclaim,
            os.environ,
            journal=place.journal,
            standing=standing,
            acted_on=self._remembered.done(),
        )
        self._pruning = Pruning(place.store, job.keep, journal=place.journal)
        sources: list[Source] = [self._inbox, self._cloud]
        sources += [self._flag_file] if self._flag_file else []
        for source in sources:
            threading.Thread(
                target=source.run, args=(self._tell, self._closing), name=source.name, daemon=True
            ).start()

    def prune(self, owner: Committer) -> None:
        """A commit was acknowledged: remove what the policy lets go."""
        self._pruning.after_commit(owner)

    def make_room(self, owner: Committer) -> None:
        """A save found the store full."""
        self._pruning.make_room(owner)

    def finished(self, run: str) -> None:
        """The run is over for good."""
        self._pruning.finished(run)

    def close(self, *, saved: bool = False, seconds: float = TIDY_SECONDS) -> None:
        """Remove the requests that were acted on, so that the next life does not act on them again.

        ``saved``: all is durable, so what was announced has been acted on for good. A bucket that does not
        answer is waited for no longer than ``seconds``: the next life passes over what is older than itself.
        """
        self._closing.set()
        if not self._heard:
            return
        if self._flag_file is not None:
            self._flag_file.handled()
        if saved:
            self._remembered.settle()
            self._cloud.handled()
        if seconds > 0:
            tidying = threading.Thread(target=self._tidy, name="tidying", daemon=True)
            tidying.start()
            tidying.join(min(seconds, TIDY_SECONDS))

    def _tidy(self) -> None:
        with suppress(OutliveError):
            self._inbox.handled()

    def _tell(self, said: Notice | Withdrawn) -> None:
        if isinstance(said, Withdrawn):
            self._remembered.forget(said.id)
            self._post(CalledOff(withdrawn=said))
            return
        if self._remembered.acted_on(said):
            self._journal.info(f"{said.source} still announces what was acted on already ({said.id})")
            return
        self._heard = True
        if said.source != self._inbox.name:  # the inbox remembers by itself, and knows which life was meant
            self._remembered.add(said)
        self._post(Noticed(notice=said))

    def _superseded(self, error: Superseded) -> None:
        self._post(SupersededSeen(error=error))
