"""One rank's part of a checkpoint, sent to the store: what lies there already is only named."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from outlive.dcp.contents import Contents
from outlive.dcp.session import Session
from outlive.objects.interface import Body
from outlive.store import layout
from outlive.store.chunks import digest
from outlive.store.document import Json
from outlive.store.flight import each, workers_for
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Blob, Chunk, Part
from outlive.store.table import TensorTable
from outlive.train import values as values_json
from outlive.train.values import dump


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the coordinator tells the ranks: whose life it is, and what need not be sent again."""

    number: int
    """The coordinator's saves, counted: one that was met before comes from a planner that caches plans."""
    life: int
    step: int
    parent: CheckpointId | None
    rank: int
    world: int


def send_part(
    session: Session, order: Order, *, table: TensorTable, contents: Contents, document: Mapping[str, Json]
) -> Part:
    """Send all of it, many objects at once. On the store's errors: nobody names what was sent."""
    sender = Sender(session, CheckpointId(order.life, order.step))
    blobs: dict[int, Blob] = {}
    small = {-1: values(document), -2: table.encode()}

    def send(number: int) -> None:
        blobs[number] = sender.send(small[number] if number < 0 else contents.chunk(number))

    each(range(-2, len(contents.pieces)), send, workers=workers_for(session.store))
    chunks = tuple(
        Chunk(offset=offset, bytes=size, blake3=blobs[number].blake3, home=blobs[number].home)
        for number, (offset, size) in enumerate(contents.pieces)
    )
    return Part(
        rank=order.rank,
        world=order.world,
        bytes=table.bytes,
        table=blobs[-2],
        values=blobs[-1],
        chunks=chunks,
    )


def values(document: Mapping[str, Json]) -> bytes:
    """The values of a part."""
    return dump(cast("values_json.Json", {"dcp": document}))


class Sender:
    """Puts objects under one checkpoint's name, each content once."""

    def __init__(self, session: Session, own: CheckpointId) -> None:
        self._session = session
        self._own = own
        self._guard = threading.Lock()
        self._under_way: set[str] = set()

    def send(self, content: Body) -> Blob:
        """See that this content is in the store, and say where."""
        blob = Blob(blake3=digest(content), bytes=len(content), home=self._own)
        known = self._session.known.get(blob.blake3)
        if known is not None and known.home <= self._own:
            return known
        with self._guard:
            first = blob.blake3 not in self._under_way
            self._under_way.add(blob.blake3)
        if first:
            self._session.store.put(
                layout.chunk(self._session.place.run, self._own, blake3=blob.blake3), content
            )
            with self._session.guard:
                self._session.known[blob.blake3] = blob
        return blob
