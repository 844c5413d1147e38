"""Requests that somebody put into the run's inbox in the store, from anywhere."""

import re
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

from outlive.errors import Damaged, NotFound, OutliveError, Superseded
from outlive.objects.interface import ObjectInfo, ObjectStore
from outlive.store import layout
from outlive.store.document import Fields, decode
from outlive.store.lives import Life, check_newest
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice

NEAR_SECONDS, FAR_SECONDS = 0.5, 5.0
_AT_MOST = 64 * 1024
_KINDS = re.compile("reclaim|save")


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
        self._seen: set[str] = set()
        self._began: datetime | None = None
        self.period = FAR_SECONDS if "://" in store.location else NEAR_SECONDS

    def run(self, tell: Callable[[Notice], None], closing: threading.Event) -> None:
        """Look every few seconds; say once that the store can't be reached, and once that it can again."""
        ill = False
        while not closing.wait(self.period):
            try:
                notices = self.look()
                for notice in notices:
                    tell(notice)
                if ill:
                    self._journal.info("the run's inbox can be read again")
                ill = False
                check_newest(self._store, self._life)
            except Superseded as error:
                self._superseded(error)
                return
            except OutliveError as error:
                if not ill:
                    self._journal.problem("the run's inbox can't be read", error)
                ill = True

    def look(self) -> list[Notice]:
        """The requests that have come since the last look."""
        if not self._requests:
            return []
        notices = []
        for info in self._store.list(layout.inboxes(self._life.run)):
            request = layout.parse_inbox(self._life.run, info.key)
            if request is None or request in self._seen:
                continue
            notice = self._read(info, request)
            self._seen.add(request)
            if notice is not None:
                notices.append(notice)
        return notices

    def handled(self) -> None:
        """Remove the requests that were seen, so that the next life does not act on them."""
        self._store.delete([layout.inbox(self._life.run, request) for request in sorted(self._seen)])
        self._seen.clear()

    def _read(self, info: ObjectInfo, request: str) -> Notice | None:
        try:
            fields = decode(self._store.get(info.key, at_most=_AT_MOST), "request", where=info.key)
            kind = fields.text("kind", pattern=_KINDS)
            if fields.has("life") and fields.integer("life") != self._life.number:
                return None
            deadline = _deadline(fields)
        except NotFound:
            return None
        except Damaged as error:
            self._journal.problem("a request in the run's inbox can't be understood", error)
            return None
        now, here = self._store.now(), time.monotonic()
        left = None if deadline is None else (deadline - now).total_seconds()
        if left is not None and left < 0 and self._older(info):
            return None  # it was for an earlier life, and nobody was there to remove it
        return Notice(
            kind="reclaim" if kind == "reclaim" else "hint",
            deadline=None if left is None else here + left,
            source=self.name,
            id=request,
            received_at=here,
        )

    def _older(self, info: ObjectInfo) -> bool:
        """Whether the request was there before this life was claimed; both times are the store's own."""
        if self._began is None:
            claim = layout.of_life(self._life.run, self._life.number)
            times = [item.modified for item in self._store.list(claim)]
            self._began = min(times, default=datetime.now(timezone.utc))
        return info.modified <= self._began


def _deadline(fields: Fields) -> datetime | None:
    return fields.time("deadline") if fields.has("deadline") else None
