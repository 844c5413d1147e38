"""What lives leave beside their checkpoints, and which of it nobody will read again: events and requests."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectInfo, ObjectStore
from outlive.store import layout
from outlive.store.layout import EventKey
from outlive.store.requests import read_request

WHOLE_LIVES: Final = 50
"""So many of the newest lives keep every event."""
TOLD_LIVES: Final = 1000
"""So many keep how they ended; of older ones only the claim is left, and what they resumed from."""
ENDED: Final = "ended"
"""An agent's last word on a life."""
ENDINGS: Final = frozenset({"training", "notice", "superseded", ENDED})
"""What a life's line in the history is made of."""


def old_events(
    store: ObjectStore, run: str, *, life: int, saved: Collection[int], before: datetime
) -> list[str]:
    """The keys of events that may go now that ``life`` is the newest. Lives in ``saved`` have checkpoints."""
    return [
        info.key
        for info in store.list(layout.histories(run))
        if (event := layout.parse_history(run, info.key)) is not None
        and event.life not in saved
        and info.modified < before
        and _is_old(event, life)
    ]


def old_requests(store: ObjectStore, run: str, *, life: int, now: datetime, grace: timedelta) -> list[str]:
    """The keys of requests that nobody can act on any more. The young ones stay unread."""
    return [
        info.key
        for info in store.list(layout.inboxes(run))
        if info.modified < now - grace and _is_over(store, run, info, life=life, now=now)
    ]


def _is_old(event: EventKey, life: int) -> bool:
    if event.life > life - WHOLE_LIVES:
        return False
    return event.life <= life - TOLD_LIVES or event.event not in ENDINGS


def _is_over(store: ObjectStore, run: str, info: ObjectInfo, *, life: int, now: datetime) -> bool:
    """Whether it was for an earlier life, or its time has passed, or it can't be read."""
    name = layout.parse_inbox(run, info.key)
    if name is None:
        return False  # whatever it is, it is not ours
    try:
        request = read_request(store, run, name)
    except NotFound:
        return False
    except Damaged:
        return True
    if request.life is not None and request.life < life:
        return True
    return request.deadline is None or request.deadline < now
