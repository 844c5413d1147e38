"""The checkpoints that can be loaded, best first, and what torch is told of one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outlive.dcp.foreign import index_of_run
from outlive.dcp.index import Index
from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.fetch import read_blob
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Manifest
from outlive.store.newest import checkpoints, listed, read_manifest
from outlive.store.survey import missing
from outlive.train.values_read import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint whose objects are all there, as far as a listing shows."""

    manifest: Manifest
    index: Index

    @property
    def id(self) -> CheckpointId:
        return self.manifest.id


def candidates(store: ObjectStore, run: str, *, step: int | None) -> Iterator[CheckpointId]:
    """What to try, best first; with a step the newest of that step only."""
    if step is None:
        yield from checkpoints(store, run)
        return
    found = [checkpoint for checkpoint in checkpoints(store, run) if checkpoint.step == step]
    found += [c for c in sorted(listed(store, run), reverse=True) if c.step == step and c not in found]
    yield from found[:1]


def read_candidate(store: ObjectStore, run: str, checkpoint: CheckpointId) -> Candidate:
    """Its manifest and what is where. ``Damaged``, ``NotFound`` if it is not whole, as far as one can see."""
    manifest = read_manifest(store, run, checkpoint)
    gone = missing(store, run, list(manifest.blobs()))
    if gone:
        first = min(layout.chunk(run, blob.home, blake3=blob.blake3) for blob in gone)
        raise Damaged(f"{len(gone)} objects of {run} {checkpoint} are missing or short, such as {first}")
    document = read_values(store, manifest, rank=0)
    known = document.get("dcp")
    if not isinstance(known, dict):
        return Candidate(manifest=manifest, index=index_of_run(store, manifest))
    where = f"the index of {run} {checkpoint}"
    return Candidate(manifest=manifest, index=Index.decode(known.get("index"), manifest, where=where))


def read_values(store: ObjectStore, manifest: Manifest, *, rank: int) -> dict[str, Any]:
    """The values of one part, verified; what they hold is unchecked."""
    blob = manifest.parts[rank].values
    raw = bytearray(blob.bytes)
    read_blob(store, manifest.run, blob, memoryview(raw))
    document = load(bytes(raw))
    if not isinstance(document, dict):
        raise Damaged(f"the values of {manifest.run} {manifest.id} are no object")
    return document


def no_checkpoint(store: ObjectStore, run: str, step: int | None) -> NotFound:
    """What to say where there is none."""
    named = "" if step is None else f" of step {step}"
    return NotFound(
        f"run {run} in {store.location} has no checkpoint{named}",
        hint=f"outlive ls {run} --store {store.location} lists them",
    )
