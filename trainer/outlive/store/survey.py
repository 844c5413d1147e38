"""What a run holds, as one look at the store shows it: manifests first, then every chunk by name and size."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectInfo, ObjectStore
from outlive.store import layout
from outlive.store.flight import each, workers_for
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Blob, Manifest
from outlive.store.newest import preferred, read_manifest, rewinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One look. Every chunk that a manifest in it names was sent before the chunks were listed."""

    run: str
    manifests: dict[CheckpointId, Manifest]
    unreadable: dict[CheckpointId, str]
    written: dict[CheckpointId, datetime]
    """When the store got each manifest."""
    order: list[CheckpointId]
    """To resume from, best first; the unreadable ones too, those that a rewind abandoned not."""
    rewound_at: datetime | None
    """When a life last went back on purpose."""
    chunks: dict[str, ObjectInfo]
    whole: frozenset[CheckpointId]
    """Those whose manifest can be read and whose chunks are all listed with the right length."""
    now: datetime
    """By the store's clock."""


def keys(manifest: Manifest) -> Iterator[tuple[str, Blob]]:
    """Every object that a checkpoint needs, with its key."""
    for blob in manifest.blobs():
        yield layout.chunk(manifest.run, blob.home, blake3=blob.blake3), blob


def lacks(manifest: Manifest, chunks: Mapping[str, ObjectInfo]) -> Iterator[tuple[str, Blob]]:
    """The objects that a checkpoint needs and that are not listed with the right length."""
    for key, blob in keys(manifest):
        info = chunks.get(key)
        if info is None or info.size != blob.bytes:
            yield key, blob


def missing(store: ObjectStore, run: str, blobs: Collection[Blob]) -> set[Blob]:
    """Those of ``blobs`` that the store does not list with the right length."""
    listed = {info.key: info for info in store.list(layout.chunks(run))} if blobs else {}
    found = ((blob, listed.get(layout.chunk(run, blob.home, blake3=blob.blake3))) for blob in blobs)
    return {blob for blob, info in found if info is None or info.size != blob.bytes}


def survey(store: ObjectStore, run: str) -> Survey:
    """Look at a run: four listings, and every manifest read once."""
    written: dict[CheckpointId, datetime] = {}
    for info in store.list(layout.manifests(run)):
        checkpoint = layout.parse_manifest(run, info.key)
        if checkpoint is not None:
            written[checkpoint] = info.modified
    manifests: dict[CheckpointId, Manifest] = {}
    unreadable: dict[CheckpointId, str] = {}

    def read(checkpoint: CheckpointId) -> None:
        try:
            manifests[checkpoint] = read_manifest(store, run, checkpoint)
        except NotFound:  # removed since it was listed
            written.pop(checkpoint)
        except Damaged as error:
            unreadable[checkpoint] = str(error)

    each(list(written), read, workers=workers_for(store))
    order = preferred(list(written), rewinds(store, run))
    lives = list(store.list(layout.lives(run)))
    chunks = {i.key: i for i in store.list(layout.chunks(run)) if layout.parse_chunk(run, i.key)}
    return Survey(
        run=run,
        manifests=manifests,
        unreadable=unreadable,
        written=written,
        order=order,
        rewound_at=max((i.modified for i in lives if layout.parse_rewound(run, i.key)), default=None),
        chunks=chunks,
        whole=frozenset(
            i for i, manifest in manifests.items() if not any(True for _ in lacks(manifest, chunks))
        ),
        now=store.now(),
    )
