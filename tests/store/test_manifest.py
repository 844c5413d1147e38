import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import Damaged
from outlive.store.layout import MAX_LIFE, MAX_STEP, CheckpointId
from outlive.store.manifest import REASONS, Blob, Chunk, Manifest, Part

digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    own = CheckpointId(draw(st.integers(1, MAX_LIFE)), draw(st.integers(0, MAX_STEP)))
    homes = st.just(own) | st.builds(CheckpointId, st.integers(1, own.life), st.integers(0, own.step))

    def blob(most: int) -> Blob:
        return Blob(blake3=draw(digests), bytes=draw(st.integers(1, most)), home=draw(homes))

    parts = []
    world = draw(st.integers(1, 3))
    for rank in range(world):
        at, chunks = 0, []
        for _ in range(draw(st.integers(0, 4))):
            piece = blob(32 * 1024 * 1024)
            chunks.append(Chunk(offset=at, bytes=piece.bytes, blake3=piece.blake3, home=piece.home))
            at += piece.bytes
        parts.append(
            Part(rank=rank, world=world, bytes=at, table=blob(999), values=blob(999), chunks=tuple(chunks))
        )
    moment = draw(st.datetimes(timezones=st.just(timezone.utc)))
    return Manifest(
        run=draw(st.from_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)),
        life=own.life,
        step=own.step,
        epoch=draw(st.none() | st.integers(0, 2**40)),
        reason=draw(st.sampled_from(REASONS)),
        created_at=moment.replace(microsecond=moment.microsecond // 1000 * 1000),
        nonce=draw(st.binary(min_size=16, max_size=16).map(bytes.hex)),
        parent=draw(st.none() | homes),
        metrics=draw(st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)),
        environment=draw(st.dictionaries(texts, texts, max_size=3)),
        parts=tuple(parts),
    )


@given(manifests())
def test_a_manifest_is_read_back_as_it_was(manifest: Manifest) -> None:
    """What is written is read, homes and infinities included."""
    assert Manifest.decode(manifest.encode()) == manifest


@given(manifests(), st.data())
def test_a_manifest_that_was_altered_anywhere_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    """One flipped bit, one missing byte or one more are never read as a checkpoint."""
    raw = bytearray(manifest.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    for altered in (bytes(raw), manifest.encode()[:-1], manifest.encode() + b" ", manifest.encode()[:at]):
        with pytest.raises(Damaged):
            Manifest.decode(altered)


@given(st.binary(max_size=300))
def test_rubbish_is_damaged_and_nothing_else(raw: bytes) -> None:
    """No bytes make the reader fail in another way, with a right digest or without."""
    for document in (raw, sealed(raw)):
        with pytest.raises(Damaged):
            Manifest.decode(document)


def sealed(body: bytes) -> bytes:
    """Any bytes with the digest that belongs to them: what a person with the keys to the bucket can write."""
    return body + b',"blake3":"' + blake3(body).hexdigest().encode() + b'"}'


HOME = CheckpointId(1, 5)
PIECE = Blob(blake3="a" * 64, bytes=64, home=HOME)
GOOD = Manifest(
    run="gpt",
    life=1,
    step=5,
    epoch=None,
    reason="interval",
    created_at=datetime(2026, 12, 1, tzinfo=timezone.utc),
    nonce="0" * 32,
    parent=None,
    metrics={"loss": 1.0},
    environment={"torch": "2"},
    parts=(
        Part(
            rank=0,
            world=1,
            bytes=128,
            table=PIECE,
            values=PIECE,
            chunks=(
                Chunk(offset=0, bytes=64, blake3="a" * 64, home=HOME),
                Chunk(offset=64, bytes=64, blake3="b" * 64, home=HOME),
            ),
        ),
    ),
)


def written(change: Callable[[Any], object]) -> bytes:
    """The good manifest with a change, and a digest that fits."""
    document = json.loads(GOOD.encode())
    del document["blake3"]
    change(document)
    return sealed(json.dumps(document, separators=(",", ":")).encode().removesuffix(b"}"))


def test_the_unchanged_document_passes() -> None:
    """The changes below are the only reason for what they cause."""
    assert Manifest.decode(written(lambda document: None)) == GOOD
    assert GOOD.total_bytes == 128
    assert [blob.blake3[0] for blob in GOOD.blobs()] == ["a", "a", "a", "b"]


def chunk(document: Any, index: int = 1) -> Any:
    return document["parts"][0]["chunks"][index]


CHANGES: list[Callable[[Any], object]] = [
    lambda d: d.update(run="../other"),
    lambda d: d.update(run="gpt\n"),
    lambda d: d.update(life=0),
    lambda d: d.update(life=True),
    lambda d: d.update(life=1_000_000),
    lambda d: d.update(step=-1),
    lambda d: d.update(step=1.5),
    lambda d: d.update(step=10**12),
    lambda d: d.update(epoch="1"),
    lambda d: d.update(reason="because"),
    lambda d: d.update(created_at="2026-13-01T00:00:00.000Z"),
    lambda d: d.update(created_at="yesterday"),
    lambda d: d.update(nonce="x" * 32),
    lambda d: d.update(parent=[1]),
    lambda d: d.update(parent=[1, 2, 3]),
    lambda d: d.update(parent=[0, 2]),
    lambda d: d.update(parent=[1, True]),
    lambda d: d.update(metrics={"loss": "low"}),
    lambda d: d.update(metrics={"loss": True}),
    lambda d: d.update(metrics={"x" * 600: 1.0}),
    lambda d: d.update(metrics={str(n): 1.0 for n in range(5000)}),
    lambda d: d.update(metrics=[]),
    lambda d: d.update(environment={"a": 1}),
    lambda d: d.update(environment={"a": "\ud800"}),
    lambda d: d.update(parts=[]),
    lambda d: d.update(parts=d["parts"] * 2),
    lambda d: d.update(parts={}),
    lambda d: d["parts"][0].update(rank=1),
    lambda d: d["parts"][0].update(world=2),
    lambda d: d["parts"][0].update(bytes=127),
    lambda d: d["parts"][0].update(bytes=2**60),
    lambda d: d["parts"][0].update(chunks=[]),
    lambda d: d["parts"][0].update(table=None),
    lambda d: d["parts"][0]["values"].update(bytes=0),
    lambda d: d["parts"][0]["values"].update(bytes=2**40),
    lambda d: d["parts"][0]["values"].update(blake3="../../../etc/passwd"),
    lambda d: chunk(d).update(offset=65),
    lambda d: chunk(d).update(offset=63),
    lambda d: chunk(d).update(offset=-64),
    lambda d: chunk(d).update(bytes=0),
    lambda d: chunk(d).update(bytes=33 * 1024 * 1024),
    lambda d: chunk(d).update(blake3="A" * 64),
    lambda d: chunk(d).update(blake3="a" * 63),
    lambda d: chunk(d).update(blake3=None),
    lambda d: chunk(d).update(home=[1, 6]),
    lambda d: chunk(d).update(home=[2, 1]),
    lambda d: chunk(d).update(home="000001-000000000005"),
    lambda d: d["parts"][0]["chunks"].reverse(),
    lambda d: d.update(version=2),
    lambda d: d.update(format="outlive/table"),
]


@pytest.mark.parametrize("change", CHANGES, ids=[str(number) for number in range(len(CHANGES))])
def test_a_manifest_that_claims_the_impossible_is_refused(change: Callable[[Any], object]) -> None:
    """Types, bounds, names, coverage and homes hold even when the digest is right."""
    with pytest.raises(Damaged):
        Manifest.decode(written(change))


def test_members_of_the_future_are_ignored() -> None:
    """A reader passes over what it does not know, at every level."""

    def change(document: Any) -> None:
        document["new"] = {"x": [1]}
        chunk(document)["codec"] = "none"

    assert Manifest.decode(written(change)) == GOOD


def test_a_chunk_of_an_earlier_checkpoint_says_where_it_lies() -> None:
    """Only a home that is not the manifest's own is written down."""
    away = replace(GOOD.parts[0].chunks[0], home=CheckpointId(1, 2))
    part = replace(GOOD.parts[0], chunks=(away, GOOD.parts[0].chunks[1]))
    document = json.loads(replace(GOOD, parts=(part,)).encode())
    assert chunk(document, 0)["home"] == [1, 2]
    assert "home" not in chunk(document, 1)
