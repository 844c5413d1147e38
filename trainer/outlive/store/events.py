"""What happened to a run, life by life: written once, read with patience for what it does not know."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from outlive.errors import AlreadyExists, Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import Fields, Json, decode, encode, float_json, stamp
from outlive.store.layout import EventKey
from outlive.store.lives import Life

EVENT_BYTES: Final = 1024 * 1024
_OURS: Final = frozenset({"format", "version", "life", "event", "at"})
_MOST_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. ``details`` are the event's own members, not checked."""

    life: int
    sequence: int
    event: str
    at: datetime
    details: Mapping[str, object]


class EventLog:
    """Writes the events of one life, numbered from where its history ends. For many threads."""

    def __init__(self, store: ObjectStore, life: Life) -> None:
        self._store = store
        self._life = life
        self._lock = threading.Lock()
        self._next: int | None = None

    def write(self, event: str, **details: Json) -> str:
        """Record that ``event`` happened now. Returns its key."""
        if _OURS & details.keys():
            raise ValueError(f"an event has these members already: {sorted(_OURS & details.keys())}")
        plain = {
            name: float_json(value) if isinstance(value, float) else value for name, value in details.items()
        }
        at = stamp(datetime.now(timezone.utc))
        body = encode("event", {"life": self._life.number, "event": event, "at": at, **plain})
        with self._lock:
            self._next = self._count() if self._next is None else self._next
            for _ in range(_MOST_ATTEMPTS):
                key = layout.history(self._life.run, self._life.number, sequence=self._next, event=event)
                self._next += 1
                if self._placed(key, body):
                    return key
        raise AlreadyExists(f"{key} in {self._store.location} and the numbers before it are taken")

    def _placed(self, key: str, body: bytes) -> bool:
        """False if another process of this life has used the number."""
        try:
            self._store.put(key, body, create_only=self._store.limits.create_only)
        except AlreadyExists:
            return self._store.get(key, at_most=EVENT_BYTES) == body  # or our own answer was lost
        return True

    def _count(self) -> int:
        prefix = layout.histories(self._life.run, self._life.number)
        numbers = [key.sequence for key in _keys(self._store, self._life.run, prefix)]
        return max(numbers, default=-1) + 1


def write_event(store: ObjectStore, life: Life, event: str, **details: Json) -> None:
    """Record one event. Whoever writes more than one keeps an ``EventLog``, which lists only once."""
    EventLog(store, life).write(event, **details)


def read_events(
    store: ObjectStore,
    run: str,
    *,
    life: int | None = None,
    on_rubbish: Callable[[str, Exception], None] | None = None,
) -> list[Event]:
    """The history of a run, or of one life, in order. What can't be read is told to ``on_rubbish``."""
    events: list[Event] = []
    for key in _keys(store, run, layout.histories(run, life)):
        name = layout.history(run, key.life, sequence=key.sequence, event=key.event)
        try:
            events.append(_event(store.get(name, at_most=EVENT_BYTES), key, where=name))
        except (Damaged, NotFound) as error:
            if on_rubbish is not None:
                on_rubbish(name, error)
    return events


def last_event(store: ObjectStore, run: str, life: int) -> Event | None:
    """The newest readable event of a life."""
    for key in reversed(_keys(store, run, layout.histories(run, life))):
        name = layout.history(run, key.life, sequence=key.sequence, event=key.event)
        try:
            return _event(store.get(name, at_most=EVENT_BYTES), key, where=name)
        except (Damaged, NotFound):
            continue
    return None


def _keys(store: ObjectStore, run: str, prefix: str) -> list[EventKey]:
    keys = (layout.parse_history(run, info.key) for info in store.list(prefix))
    return [key for key in keys if key is not None]


def _event(raw: bytes, key: EventKey, *, where: str) -> Event:
    fields: Fields = decode(raw, "event", where=where)
    if (fields.integer("life"), fields.text("event")) != (key.life, key.event):
        raise fields.wrong("life or event")
    details = {name: value for name, value in fields.members().items() if name not in _OURS}
    return Event(life=key.life, sequence=key.sequence, event=key.event, at=fields.time("at"), details=details)
