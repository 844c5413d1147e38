"""One rank's part of a checkpoint, sent to the store: what lies there already is only named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from outlive.dcp.contents import Contents
from outlive.dcp.session import Session
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
    placing = session.placing(CheckpointId(order.life, order.step))
    blobs: dict[int, Blob] = {}
    small = {-1: values(document), -2: table.encode()}

    def send(number: int) -> None:
        blobs[number], _ = placing.place(small[number] if number < 0 else contents.chunk(number))

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
