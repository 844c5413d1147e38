"""The manifest: the document whose existence is the checkpoint, and what it may say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, get_args

from blake3 import blake3 as _blake3

from outlive.errors import Damaged
from outlive.store.chunks import CHUNK_BYTES
from outlive.store.document import (
    DIGEST,
    DOCUMENT_BYTES,
    NONCE,
    Fields,
    Json,
    decode,
    encode,
    float_json,
    is_text,
    refuse_sealed,
    stamp,
)
from outlive.store.layout import MAX_LIFE, MAX_STEP, RUN_NAME, CheckpointId

Reason = Literal["interval", "notice", "signal", "exception", "hand", "finished"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

MAX_WORLD: Final = 65_536

_SEAL: Final = b',"blake3":"'
_MOST_NAMES: Final = 4096
_NAME_CHARS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An object under ``chunks/``: BLAKE3 and length of its content, and whose name it lies under."""

    blake3: str
    bytes: int
    home: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a rank's image, from ``offset`` on."""

    offset: int
    bytes: int
    blake3: str
    home: CheckpointId

    @property
    def blob(self) -> Blob:
        return Blob(blake3=self.blake3, bytes=self.bytes, home=self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one rank saved. The chunks are in order and cover the image without gap or overlap."""

    rank: int
    world: int
    bytes: int
    table: Blob
    values: Blob
    chunks: tuple[Chunk, ...]

    def blobs(self) -> Iterator[Blob]:
        """Every object that this part needs; one that is needed twice comes twice."""
        yield self.table
        yield self.values
        for chunk in self.chunks:
            yield chunk.blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One checkpoint: where it stands, why and by whom it was saved, and every object it needs."""

    run: str
    life: int
    step: int
    epoch: int | None
    reason: Reason
    created_at: datetime
    nonce: str
    parent: CheckpointId | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Part, ...]

    @property
    def id(self) -> CheckpointId:
        return CheckpointId(self.life, self.step)

    @property
    def total_bytes(self) -> int:
        """What the images of all ranks hold, whether it was sent for this checkpoint or lay there already."""
        return sum(part.bytes for part in self.parts)

    def blobs(self) -> Iterator[Blob]:
        """Every object that this checkpoint needs; one that is needed twice comes twice."""
        for part in self.parts:
            yield from part.blobs()

    def encode(self) -> bytes:
        members: dict[str, Json] = {
            "run": self.run,
            "life": self.life,
            "step": self.step,
            "epoch": self.epoch,
            "reason": self.reason,
            "created_at": stamp(self.created_at),
            "nonce": self.nonce,
            "parent": _pair(self.parent),
            "metrics": {name: float_json(value) for name, value in self.metrics.items()},
            "environment": dict(self.environment),
            "parts": [_part_json(part, own=self.id) for part in self.parts],
        }
        body = encode("checkpoint", members).removesuffix(b"}")
        return body + _SEAL + _blake3(body).hexdigest().encode() + b'"}'

    @classmethod
    def decode(cls, raw: bytes, *, where: str = "the manifest") -> "Manifest":
        """The reverse. ``Damaged`` for every document that ``encode`` could not have written."""
        if len(raw) > DOCUMENT_BYTES:
            raise Damaged(f"{where} is longer than a manifest can be")
        refuse_sealed(raw, where=where)
        body, seal, digest = raw[:-77], raw[-77:-66], raw[-66:]
        if seal != _SEAL or digest != _blake3(body).hexdigest().encode() + b'"}':
            raise Damaged(f"{where} is altered: its bytes are not those of its own digest")
        fields = decode(raw, "checkpoint", where=where)
        own = CheckpointId(
            fields.integer("life", low=1, high=MAX_LIFE), fields.integer("step", high=MAX_STEP)
        )
        return cls(
            run=fields.text("run", pattern=RUN_NAME),
            life=own.life,
            step=own.step,
            epoch=fields.integer("epoch") if fields.has("epoch") else None,
            reason=_reason(fields),
            created_at=fields.time("created_at"),
            nonce=fields.text("nonce", pattern=NONCE),
            parent=read_pair(fields, "parent"),
            metrics=_metrics(fields.member("metrics")),
            environment=_environment(fields.member("environment")),
            parts=_parts(fields, own=own),
        )


def read_pair(fields: Fields, name: str) -> CheckpointId | None:
    """A checkpoint as documents name it: ``[life, step]``, or null."""
    if not fields.has(name):
        return None
    pair = [number for number in fields.sequence(name, most=2) if type(number) is int]
    try:
        life, step = pair
        return CheckpointId(life, step)
    except ValueError as error:
        raise fields.wrong(name) from error


def _pair(checkpoint: CheckpointId | None) -> Json:
    return None if checkpoint is None else [checkpoint.life, checkpoint.step]


def _part_json(part: Part, *, own: CheckpointId) -> Json:
    return {
        "rank": part.rank,
        "world": part.world,
        "bytes": part.bytes,
        "table": _blob_json(part.table, own=own),
        "values": _blob_json(part.values, own=own),
        "chunks": [{"offset": chunk.offset, **_blob_json(chunk.blob, own=own)} for chunk in part.chunks],
    }


def _blob_json(blob: Blob, *, own: CheckpointId) -> dict[str, Json]:
    members: dict[str, Json] = {"bytes": blob.bytes, "blake3": blob.blake3}
    if blob.home != own:
        members["home"] = _pair(blob.home)
    return members


def _reason(fields: Fields) -> Reason:
    text = fields.text("reason")
    for reason in REASONS:
        if reason == text:
            return reason
    raise fields.wrong("reason")


def _metrics(fields: Fields) -> dict[str, float]:
    return {name: fields.number(name) for name in _names(fields)}


def _environment(fields: Fields) -> dict[str, str]:
    return {name: fields.text(name) for name in _names(fields)}


def _names(fields: Fields) -> list[str]:
    names = fields.names()
    if len(names) > _MOST_NAMES or not all(is_text(name, most=_NAME_CHARS) for name in names):
        raise fields.wrong("the name of a member")
    return names


def _parts(fields: Fields, *, own: CheckpointId) -> tuple[Part, ...]:
    parts = tuple(_part(part, own=own) for part in fields.objects("parts", most=MAX_WORLD))
    world = len(parts)
    if not parts or any((part.rank, part.world) != (rank, world) for rank, part in enumerate(parts)):
        raise fields.wrong("parts")
    return parts


def _part(fields: Fields, *, own: CheckpointId) -> Part:
    chunks = tuple(_chunk(chunk, own=own) for chunk in fields.objects("chunks", most=DOCUMENT_BYTES // 64))
    covered = 0
    for chunk in chunks:
        if chunk.offset != covered:
            raise fields.wrong("chunks")
        covered += chunk.bytes
    if covered != fields.integer("bytes"):
        raise fields.wrong("bytes")
    return Part(
        rank=fields.integer("rank", high=MAX_WORLD),
        world=fields.integer("world", low=1, high=MAX_WORLD),
        bytes=covered,
        table=_blob(fields.member("table"), own=own, most=DOCUMENT_BYTES),
        values=_blob(fields.member("values"), own=own, most=DOCUMENT_BYTES),
        chunks=chunks,
    )


def _chunk(fields: Fields, *, own: CheckpointId) -> Chunk:
    blob = _blob(fields, own=own, most=CHUNK_BYTES)
    return Chunk(offset=fields.integer("offset"), bytes=blob.bytes, blake3=blob.blake3, home=blob.home)


def _blob(fields: Fields, *, own: CheckpointId, most: int) -> Blob:
    home = read_pair(fields, "home") or own
    if home > own:
        raise fields.wrong("home")
    return Blob(
        blake3=fields.text("blake3", pattern=DIGEST),
        bytes=fields.integer("bytes", low=1, high=most),
        home=home,
    )
