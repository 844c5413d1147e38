"""The inbox: what someone outside asks of the machine that holds a run."""

import secrets
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import decode, encode, printable, stamp
from outlive.store.layout import MAX_LIFE, REQUEST_ID

Kind = Literal["reclaim", "save"]

REQUEST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Times are the store's, so that clocks that differ don't shift a deadline.

    ``life``: meant for that life alone; None: for whoever holds the run.
    """

    id: str
    kind: Kind
    life: int | None
    deadline: datetime | None
    asked_at: datetime
    by: str


def put_request(
    store: ObjectStore,
    run: str,
    kind: Kind,
    *,
    life: int | None,
    deadline: datetime | None = None,
    by: str = "",
) -> Request:
    """Ask. ``deadline`` counts from ``store.now()``; ``life`` is usually ``newest_life(store, run)``."""
    layout.check_run_name(run)
    now = store.now()
    request = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"
    key = layout.inbox(run, request)
    body = encode(
        "request",
        {
            "id": request,
            "kind": kind,
            "life": life,
            "deadline": stamp(deadline) if deadline else None,
            "asked_at": stamp(now),
            "by": printable(by),
        },
    )
    asked = _request(body, request, where=key)  # what the other side will read, so a mistake shows here
    store.put(key, body)
    return asked


def read_requests(
    store: ObjectStore,
    run: str,
    *,
    known: Container[str] = (),
    on_rubbish: Callable[[str, Exception], None] | None = None,
) -> list[Request]:
    """The requests whose ids are not ``known``, oldest first. What is none is told to ``on_rubbish``."""
    found: list[Request] = []
    for info in store.list(layout.inboxes(run)):
        request = layout.parse_inbox(run, info.key)
        if request is None or request in known:
            continue
        try:
            found.append(read_request(store, run, request))
        except (Damaged, NotFound) as error:
            if on_rubbish is not None:
                on_rubbish(request, error)
    return found


def read_request(store: ObjectStore, run: str, request: str) -> Request:
    """One request by its id. ``Damaged``, ``NotFound``."""
    key = layout.inbox(run, request)
    return _request(store.get(key, at_most=REQUEST_BYTES), request, where=key)


def _request(raw: bytes, request: str, *, where: str) -> Request:
    fields = decode(raw, "request", where=where)
    if fields.text("id", pattern=REQUEST_ID) != request:
        raise fields.wrong("id")
    kind = fields.text("kind")
    if kind not in ("reclaim", "save"):
        raise fields.wrong("kind")
    return Request(
        id=request,
        kind="reclaim" if kind == "reclaim" else "save",
        life=fields.integer("life", low=1, high=MAX_LIFE) if fields.has("life") else None,
        deadline=fields.time("deadline") if fields.has("deadline") else None,
        asked_at=fields.time("asked_at"),
        by=fields.text("by") if fields.has("by") else "",
    )
