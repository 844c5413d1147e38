"""Requests that somebody put into the run's inbox in the store, from anywhere."""

import threading
import time
from collections.abc import Callable
from datetime import datetime

from outlive.errors import OutliveError, Superseded
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.lives import Life, holds
from outlive.store.requests import Request, read_requests
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice

NEAR_SECONDS, FAR_SECONDS = 0.5, 5.0
MOST_TOLD = 3
"""So many requests that are none are told one by one: whoever may write to the store may write thousands."""
LIVES_EVERY = 3
"""Looks between two questions for a newer life; every save asks as well."""


class Inbox:
    """Looks at the inbox, and at the lives: the poll is also where a life learns that a newer one exists."""

    name = "inbox"

    def __init__(
        self,
        store: ObjectStore,
        life: Life,
        *,
        superseded: Callable[[Superseded], None],
        journal: Journal,
        requests: bool = True,
    ) -> None:
        self._store = store
        self._life = life
        self._superseded = superseded
        self._journal = journal
        self._requests = requests
        self._known: set[str] = set()
        self._ours: set[str] = set()
        self._rubbish = 0
        self._claim_gone = False
        self._claimed_at: datetime | None = None
        self.period = FAR_SECONDS if "://" in store.location else NEAR_SECONDS

    def run(self, tell: Callable[[Notice], None], closing: threading.Event) -> None:
        """Look every few seconds; say once that the store can't be reached, and once that it can again."""
        ill, looks = False, 0
        while not closing.wait(self.period):
            looks += 1
            try:
                for notice in self.look():
                    tell(notice)
                if looks % LIVES_EVERY == 0:
                    self._check_claim()
            except Superseded as error:
                self._superseded(error)
                return
            except OutliveError as error:
                if not ill:
                    self._journal.problem("the run's inbox can't be read", error)
                ill = True
            else:
                if ill:
                    self._journal.info("the run's inbox can be read again")
                ill = False

    def look(self) -> list[Notice]:
        """The requests for this life that have come since the last look."""
        if not self._requests:
            return []
        found = read_requests(self._store, self._life.run, known=self._known, on_rubbish=self._not_understood)
        notices = []
        for request in found:
            self._known.add(request.id)
            notice = self._notice(request)
            if notice is not None:
                self._ours.add(request.id)
                notices.append(notice)
        return notices

    def handled(self) -> None:
        """Remove the requests that were acted on, so that the next life does not act on them."""
        self._store.delete([layout.inbox(self._life.run, request) for request in sorted(self._ours)])

    def _check_claim(self) -> None:
        """``Superseded``. A claim that is gone is put back by the next save, which looks what else is."""
        if holds(self._store, self._life):
            self._claim_gone = False
        elif not self._claim_gone:
            self._claim_gone = True
            who = f"life {self._life.number}"
            self._journal.warning(f"the claim of {who} was removed by somebody; the next save puts it back")

    def _notice(self, request: Request) -> Notice | None:
        if request.life not in (None, self._life.number):
            return None
        now, here = self._store.now(), time.monotonic()
        left = None if request.deadline is None else (request.deadline - now).total_seconds()
        if (left is None or left < 0) and request.asked_at <= self._began(now):
            return None  # it was for an earlier life, and nobody was there to remove it
        return Notice(
            kind="reclaim" if request.kind == "reclaim" else "hint",
            deadline=None if left is None else here + left,
            source=self.name,
            id=request.id,
            received_at=here,
        )

    def _began(self, now: datetime) -> datetime:
        """When this life was claimed, by the store's clock, which is also that of the requests."""
        if self._claimed_at is None:
            claim = layout.of_life(self._life.run, self._life.number)
            self._claimed_at = min((item.modified for item in self._store.list(claim)), default=now)
        return self._claimed_at

    def _not_understood(self, request: str, error: Exception) -> None:
        self._known.add(request)
        self._rubbish += 1
        if self._rubbish <= MOST_TOLD:
            self._journal.warning(f"a request in the run's inbox can't be understood: {error}")
        elif self._rubbish == MOST_TOLD + 1:
            self._journal.warning(
                "more in the run's inbox can't be understood",
                hint="find out who writes there; it is removed with old checkpoints after a day",
            )
