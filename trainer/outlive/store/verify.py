"""Reads every byte of a checkpoint and says all that is wrong with it, in the memory of a few chunks."""

import queue
from dataclasses import dataclass
from typing import Final

from outlive.errors import Damaged
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.chunks import CHUNK_BYTES
from outlive.store.fetch import Fetching, check_table, read_blob
from outlive.store.flight import Cancel, Tally, each, workers_for
from outlive.store.manifest import Blob, Manifest
from outlive.store.owners import check_owners
from outlive.store.table import TensorTable

_MOST_BUFFERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One object that is not what the manifest says."""

    key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verification has found. Objects that are named twice are read and counted once."""

    manifest: Manifest
    objects: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(
    store: ObjectStore,
    manifest: Manifest,
    *,
    progress: Fetching | None = None,
    cancelled: Cancel | None = None,
) -> Report:
    """Read and check all that the checkpoint needs. ``StoreError``: the store could not be asked."""
    blobs = list(dict.fromkeys(manifest.blobs()))
    total = sum(blob.bytes for blob in blobs)
    tally = Tally(total, None if progress is None else lambda done, total, _: progress(done, total))
    workers = workers_for(store, most=_MOST_BUFFERS)
    buffers: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    for _ in range(workers):
        buffers.put(bytearray(min(CHUNK_BYTES, max(blob.bytes for blob in blobs))))
    problems: list[Problem] = []

    def check(blob: Blob) -> None:
        buffer = buffers.get()
        try:
            read_blob(store, manifest.run, blob, memoryview(_at_least(buffer, blob.bytes))[: blob.bytes])
        except Damaged as error:
            problems.append(_problem(manifest, blob, str(error)))
        finally:
            buffers.put(buffer)
        tally.add(blob.bytes)

    each(blobs, check, workers=workers, cancelled=cancelled)
    problems += _documents(store, manifest, hurt={problem.key for problem in problems})
    found = tuple(sorted(problems, key=lambda problem: problem.key))
    return Report(manifest=manifest, objects=len(blobs), bytes=tally.done, problems=found)


def _documents(store: ObjectStore, manifest: Manifest, *, hurt: set[str]) -> list[Problem]:
    """Tables whose bytes are right and that say something impossible, each for itself or together."""
    problems: list[Problem] = []
    tables: list[TensorTable] = []
    for part in manifest.parts:
        key = layout.chunk(manifest.run, part.table.home, blake3=part.table.blake3)
        if key in hurt:
            continue
        try:
            tables.append(check_table(store.get(key, at_most=part.table.bytes), part, where=key))
        except Damaged as error:
            problems.append(_problem(manifest, part.table, str(error)))
    if len(tables) == len(manifest.parts):
        key = layout.manifest(manifest.run, manifest.id)
        try:
            check_owners(tables, where=key)
        except Damaged as error:
            problems.append(Problem(key=key, message=str(error)))
    return problems


def _problem(manifest: Manifest, blob: Blob, message: str) -> Problem:
    return Problem(key=layout.chunk(manifest.run, blob.home, blake3=blob.blake3), message=message)


def _at_least(buffer: bytearray, size: int) -> bytearray:
    """A document may be longer than a chunk; then it gets memory of its own."""
    return buffer if len(buffer) >= size else bytearray(size)
