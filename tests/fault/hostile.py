"""Everything that reads what a stranger may have written: one function each, from bytes to no harm done.

A target returns, or raises ``OutliveError``; anything else is a find. `seeds`: what an honest writer wrote.
"""

import functools
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from blake3 import blake3

from fakes.checkpoints import begin, snapshot
from outlive.errors import OutliveError
from outlive.objects.memory import MemoryStore
from outlive.objects.sealed import Encryption, Sealed, Signature
from outlive.staging.messages import decode
from outlive.store import layout
from outlive.store.boxes import Box, pieces_of
from outlive.store.events import read_events, write_event
from outlive.store.fetch import restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.lives import read_adoption, read_claim
from outlive.store.manifest import Manifest
from outlive.store.requests import put_request, read_requests
from outlive.store.safetensors import header, read_tensors
from outlive.store.survey import keys
from outlive.store.table import TensorEntry, TensorTable
from outlive.store.whole import whole_tensors
from outlive_agent import config
from outlive_agent.sources.aws import Aws
from outlive_agent.sources.azure import Azure
from outlive_agent.sources.digitalocean import DigitalOcean
from outlive_agent.sources.gcp import Gcp
from outlive_agent.sources.metadata_http import Answer, Metadata
from outlive_agent.sources.termination_time import alibaba, byteplus, tencent

RUN = "gpt"
_FOLDER = Path(tempfile.mkdtemp(prefix="outlive-fuzz-"))
_SEAL = b',"blake3":"'
_SHARD = TensorTable(
    bytes=64,
    tensors=(
        TensorEntry(
            path="w", dtype="float32", shape=(2, 4), offset=0, bytes=32, device="cpu", whole=(4, 4), at=(2, 0)
        ),
        TensorEntry(path="b", dtype="float32", shape=(4,), offset=64, bytes=0, device="cpu", owner=0),
    ),
)


def _manifest(data: bytes) -> None:
    """Sealed anew, as somebody who may write to the bucket would."""
    body = data.partition(_SEAL)[0].removesuffix(b"}")
    found = Manifest.decode(body + _SEAL + blake3(body).hexdigest().encode() + b'"}')
    for key, _ in keys(found):
        assert key.startswith(f"{found.run}/chunks/"), key
        assert ".." not in key, key
    assert Manifest.decode(found.encode()) == found


def _restore(data: bytes) -> None:
    """A manifest of another's among the run's objects: passed over, or its chunks are read and checked."""
    store = _store(data, layout.manifest(RUN, CheckpointId(1, 10)))
    restore_newest(store, RUN, _allocate, on_damaged=lambda *_: None)


def _allocate(size: int) -> memoryview:
    if size > 1 << 24:
        raise OutliveError("no memory for that")  # the agent asks for address space, and the kernel says no
    return memoryview(bytearray(size))


def _table(data: bytes) -> None:
    table = TensorTable.decode(data)
    for entry in table.extents():
        assert entry.offset + entry.bytes <= table.bytes


def _whole(data: bytes) -> None:
    """A part's table beside that of another rank: the tensors of both together, and what they are made of."""
    tables = [TensorTable.decode(data), TensorTable.decode(_SHARD.encode())]
    for tensor in whole_tensors(tables, where="here"):
        pieces_of(Box.whole(tensor.shape), [piece.box for piece in tensor.pieces], where=tensor.path)


def _safetensors(data: bytes) -> None:
    for tensor in read_tensors(io.BytesIO(data), where="here").values():
        assert tensor.offset + tensor.bytes <= len(data), tensor


def _claim(data: bytes) -> None:
    read_claim(_store(data, layout.life(RUN, 1)), RUN, 1)


def _adoption(data: bytes) -> None:
    read_adoption(_store(data, layout.adopted(RUN, 1)), RUN, 1)


def _request(data: bytes) -> None:
    store = _store(data, layout.inbox(RUN, "r1"))
    list(read_requests(store, RUN))


def _event(data: bytes) -> None:
    list(read_events(_store(data, layout.history(RUN, 1, sequence=1, event="ended")), RUN))


def _key(data: bytes) -> None:
    """What a listing may name: no key is taken for one that leads out of its place."""
    key = f"{RUN}/" + data.decode("utf-8", "replace")
    for read in (layout.parse_chunk, layout.parse_manifest, layout.parse_claim, layout.parse_history):
        if read(RUN, key) is not None:
            assert ".." not in key, key
            assert "//" not in key, key
    layout.life_in(data.decode("utf-8", "replace"))


def _packet(data: bytes) -> None:
    decode(data)


def _sealed(data: bytes) -> None:
    for seal in (Encryption(b"k" * 32), Signature(b"k" * 32)):
        inner = MemoryStore()
        inner.put("gpt/lives/1", data)
        with suppress(OutliveError):
            opened = Sealed(inner, seal).get("gpt/lives/1", at_most=1 << 20)
            raise AssertionError(f"{opened!r} was not written with that key")


def _config(data: bytes) -> None:
    path = _FOLDER / "outlive.yaml"
    path.write_bytes(data)
    config.load(path)


def _metadata(data: bytes) -> None:
    """Every question of every source, answered with whatever was made up."""
    said = Answer(status=200, body=data, headers={"etag": "abc"})
    with patch.object(Metadata, "ask", lambda *_, **__: said):
        ocean = DigitalOcean(token="t")  # noqa: S106
        for source in (Aws(), Gcp(), Azure(), alibaba(), tencent(), byteplus(), ocean):
            for key in source.keys:
                with suppress(OutliveError):
                    key.look()


def _planted(data: bytes) -> None:
    """A reader with a hole, which must be found: one byte after the other, as coverage shows the way."""
    if data[:1] == b"b" and data[1:2] == b"a" and data[2:3] == b"n":
        raise ValueError("a hole")


@functools.cache
def _honest() -> Mapping[str, bytes]:
    """The objects of a run that has saved once."""
    store = MemoryStore()
    owner = begin(store)
    owner.commit(snapshot(10, b"weights", b"moments", values=b'{"steps":10}', metrics={"loss": 0.5}))
    put_request(store, RUN, "reclaim", life=1, by="seed")
    write_event(store, owner.life, "ended", outcome="stopped", step=10)
    return {info.key: store.get(info.key, at_most=1 << 20) for info in store.list("")}


def _store(data: bytes, key: str) -> MemoryStore:
    """The same run with that object in the place of this one."""
    store = MemoryStore()
    for name, body in {**_honest(), key: data}.items():
        store.put(name, body)
    return store


TARGETS: dict[str, Callable[[bytes], None]] = {
    "manifest": _manifest,
    "restore": _restore,
    "table": _table,
    "whole": _whole,
    "safetensors": _safetensors,
    "claim": _claim,
    "adoption": _adoption,
    "request": _request,
    "event": _event,
    "key": _key,
    "packet": _packet,
    "sealed": _sealed,
    "config": _config,
    "metadata": _metadata,
}


PLANTED: dict[str, Callable[[bytes], None]] = {"planted": _planted}
"""Not among those that are run: for the fuzzer's own test."""


def seeds(target: str) -> list[bytes]:
    """What an honest writer wrote for that reader."""
    objects = _honest()
    document = [body for body in objects.values() if body.startswith(b"{")]
    more: dict[str, list[bytes]] = {
        "whole": [_SHARD.encode()],
        "safetensors": [header({"w": ("float32", (2,), 8)}, metadata={"format": "pt"}) + bytes(8)],
        "key": [key.removeprefix(f"{RUN}/").encode() for key in objects],
        "packet": [json.dumps({"packet": "hello", "pid": 1}).encode()],
        "config": [b"run: gpt\nstore: {location: s3://b/p}\nsave: {every: 10 steps}\n"],
        "metadata": [
            b'{"action": "terminate", "time": "2026-12-01T08:22:00Z"}',
            b'{"DocumentIncarnation": 1, "Events": [{"EventId": "A", "EventType": "Preempt"}]}',
            b"2026-12-01T08:22:00Z",
            b"TRUE",
        ],
    }
    return more.get(target, document)
