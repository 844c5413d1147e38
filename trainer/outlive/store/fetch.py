"""From the store to memory: every byte is verified before anyone uses it; what is damaged is passed over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.chunks import digest
from outlive.store.flight import Cancel, Tally, each, workers_for
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Blob, Manifest, Part
from outlive.store.newest import newest_first, read_manifest
from outlive.store.owners import check_owners
from outlive.store.table import TensorTable

Fetching = Callable[[int, int], None]
"""Told bytes done and bytes in all; from several threads, one at a time."""


PAGE: Final = 4096
"""In a joint image, every rank's begins at a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What goes with one rank's image: where that begins, the tensor table and the values, verified."""

    offset: int = 0
    table: bytes
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint in memory: ``image`` is what ``allocate`` gave, filled with the images of all ranks."""

    manifest: Manifest
    image: memoryview
    notes: tuple[Notes, ...]


def offsets(manifest: Manifest) -> tuple[int, ...]:
    """Where each rank's image begins in a joint one; at the end, where that ends."""
    found = [0]
    for part in manifest.parts:
        found[-1] = -(-found[-1] // PAGE) * PAGE
        found.append(found[-1] + part.bytes)
    return tuple(found)


def fetch(
    store: ObjectStore,
    manifest: Manifest,
    image: memoryview,
    *,
    progress: Fetching | None = None,
    cancelled: Cancel | None = None,
) -> tuple[Notes, ...]:
    """Read the images of all ranks into ``image``, many chunks at once, each verified as it arrives.

    ``Damaged`` if anything is missing, short or altered; then ``image`` holds rubbish. A ``StoreError`` says
    nothing about the checkpoint: the store could not be asked.
    """
    parts, starts = manifest.parts, offsets(manifest)
    if image.nbytes != starts[-1]:
        raise ValueError(f"an image of {starts[-1]} bytes does not go into {image.nbytes}")
    tally = Tally(sum(blob.bytes for blob in manifest.blobs()), _told(progress))
    documents: dict[tuple[int, int], bytes] = {}

    def read(at: tuple[int, int]) -> None:
        rank, index = at
        part = parts[rank]
        if index < 0:
            blob = part.table if index == -2 else part.values
            documents[at] = bytes(_verified(store, manifest.run, blob, memoryview(bytearray(blob.bytes))))
        else:
            chunk = part.chunks[index]
            begin = starts[rank] + chunk.offset
            # Released at once: an error's traceback would keep the slice, and the image could not be closed.
            with image.cast("B")[begin : begin + chunk.bytes] as place:
                _verified(store, manifest.run, chunk.blob, place)
            blob = chunk.blob
        tally.add(blob.bytes)

    work = [(rank, index) for rank, part in enumerate(parts) for index in range(-2, len(part.chunks))]
    each(work, read, workers=workers_for(store), cancelled=cancelled)
    where = f"the tensor table of {manifest.id}"
    tables = [check_table(documents[rank, -2], part, where=where) for rank, part in enumerate(parts)]
    check_owners(tables, where=str(manifest.id))
    return tuple(
        Notes(offset=starts[rank], table=documents[rank, -2], values=documents[rank, -1])
        for rank in range(len(parts))
    )


def restore_newest(
    store: ObjectStore,
    run: str,
    allocate: Callable[[int], memoryview],
    *,
    on_damaged: Callable[[CheckpointId, Damaged | NotFound], None],
    progress: Fetching | None = None,
    cancelled: Cancel | None = None,
) -> Restored | None:
    """The newest whole checkpoint of ``run``, in memory; None if the run has none at all.

    Each checkpoint that is passed over is told to ``on_damaged``. When all were, ``Damaged``: only a person
    may decide to begin from zero then. ``allocate`` is asked for each attempt.
    """
    last: Damaged | NotFound | None = None
    for checkpoint in newest_first(store, run):
        try:
            manifest = read_manifest(store, run, checkpoint)
            image = allocate(offsets(manifest)[-1])
            notes = fetch(store, manifest, image, progress=progress, cancelled=cancelled)
        except (Damaged, NotFound) as error:
            last = error
            on_damaged(checkpoint, error)
        else:
            return Restored(manifest=manifest, image=image, notes=notes)
    if last is not None:
        raise Damaged(
            f"no checkpoint of run {run} in {store.location} is whole; the last one: {last}",
            hint=f"look at them with: outlive ls {run}; outlive verify {run}",
        ) from last
    return None


def check_table(raw: bytes, part: Part, *, where: str) -> TensorTable:
    """The part's tensor table. ``Damaged`` if it is none, or one of another image."""
    table = TensorTable.decode(raw, where=where)
    if table.bytes != part.bytes:
        raise Damaged(f"{where} is of an image of {table.bytes} bytes, the manifest's has {part.bytes}")
    return table


def read_blob(store: ObjectStore, run: str, blob: Blob, place: memoryview) -> None:
    """Fill ``place`` with an object under ``chunks/`` and verify it. ``Damaged`` if it is anything else."""
    key = layout.chunk(run, blob.home, blake3=blob.blake3)
    try:
        store.read_into(key, place)
    except NotFound as error:
        raise Damaged(f"{key} in {store.location} is missing") from error
    if digest(place) != blob.blake3:
        raise Damaged(f"{key} in {store.location} is altered")


def _verified(store: ObjectStore, run: str, blob: Blob, place: memoryview) -> memoryview:
    """The same, and a second reading decides: bytes can also be hurt on their way."""
    try:
        read_blob(store, run, blob, place)
    except Damaged as error:
        if isinstance(error.__cause__, NotFound):
            raise
        read_blob(store, run, blob, place)
    return place


def _told(progress: Fetching | None) -> Callable[[int, int, int], None] | None:
    return None if progress is None else lambda done, total, _: progress(done, total)
