"""From a snapshot to a checkpoint: chunks first, the manifest last, "saved" only if nobody took over."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from threading import Lock
from typing import Final

from outlive.errors import AlreadyExists, Damaged, NotFound, StateError, StoreError, Superseded
from outlive.objects.interface import Body, ObjectStore
from outlive.store import layout
from outlive.store.chunks import cut
from outlive.store.document import DOCUMENT_BYTES
from outlive.store.flight import Cancel, Tally, each, workers_for
from outlive.store.layout import CheckpointId
from outlive.store.lives import Life, hold
from outlive.store.manifest import Blob, Chunk, Manifest, Part, Reason
from outlive.store.newest import read_manifest
from outlive.store.owners import check_owners
from outlive.store.placing import Placing
from outlive.store.survey import missing
from outlive.store.table import TensorTable
from outlive.store.whole import whole_tensors

Progress = Callable[[int, int, int], None]
"""Told bytes done, bytes in all, and bytes that had to be sent; from several threads, one at a time."""

LOOK_SECONDS: Final = 600.0
"""Between two looks whether what is not sent again is still there: a lifecycle rule may have removed it."""
_HURRIED: Final = frozenset({"notice", "signal", "exception"})
"""These saves have no time for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What one rank handed over. ``image`` must not change until the commit has returned."""

    table: bytes
    values: bytes
    image: memoryview

    @property
    def nbytes(self) -> int:
        """All that is saved of it."""
        return self.image.nbytes + len(self.table) + len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What all ranks handed over, in their order."""

    step: int
    epoch: int | None
    reason: Reason
    metrics: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A checkpoint that was acknowledged."""

    manifest: Manifest
    sent_bytes: int
    seconds: float
    put_right: tuple[str, ...] = ()
    """What somebody else had removed from the store and is there again: lines for people."""


class Committer:
    """Commits the snapshots of one life, one at a time, and remembers what need not be sent again."""

    def __init__(
        self,
        store: ObjectStore,
        life: Life,
        *,
        parent: Manifest | None,
        workers: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._workers = workers or workers_for(store)
        self._known = _by_content(parent)
        self._guard = Lock()
        self._turn = Lock()
        self._superseded: Superseded | None = None
        self._clock = clock
        self._look_at = clock() + LOOK_SECONDS
        self._put_right: list[str] = []
        self.life = life
        self.parent = parent
        self.newest: Manifest | None = None
        """The newest checkpoint of this life in the store; perhaps nobody was told yet that it is saved."""
        self.acknowledged: Manifest | None = None
        """The newest one that was acknowledged."""

    def commit(
        self, snapshot: Snapshot, *, progress: Progress | None = None, cancelled: Cancel | None = None
    ) -> Committed:
        """Make a checkpoint of it and return when it is acknowledged.

        ``Superseded``: a newer life exists; the caller must stop. ``StoreError``, ``Cancelled``: there is no
        checkpoint that anyone may rely on, and the next commit sends only what this one had not sent yet.
        ``StateError``: the snapshot itself is wrong.
        """
        began = time.monotonic()
        with self._turn:
            self._check(snapshot)
            self._put_right = []
            if snapshot.reason not in _HURRIED and self._clock() >= self._look_at:
                self._forget_missing(self._known.values())
            tally = Tally(sum(image.nbytes for image in snapshot.images), progress)
            parts = self._send(snapshot, tally=tally, cancelled=cancelled)
            manifest = self._publish(self._manifest(snapshot, parts))
            self.newest = manifest
            with self._guard:
                self._known = _by_content(manifest)
            self._acknowledge(manifest)
        return Committed(
            manifest=manifest,
            sent_bytes=tally.sent,
            seconds=time.monotonic() - began,
            put_right=tuple(self._put_right),
        )

    def conclude(self, manifest: Manifest) -> Committed:
        """Make a checkpoint of parts that others have sent already; the manifest names them as this life's.

        The same errors as ``commit``, and the same promise: when it returns, the checkpoint is acknowledged.
        """
        began = time.monotonic()
        with self._turn:
            if self._superseded is not None:
                raise self._superseded
            self._put_right = []
            self.newest = self._publish(manifest)
            self._acknowledge(self.newest)
        return Committed(
            manifest=self.newest,
            sent_bytes=0,
            seconds=time.monotonic() - began,
            put_right=tuple(self._put_right),
        )

    def _check(self, snapshot: Snapshot) -> None:
        """Refuse before the first byte is sent what could not become a checkpoint in the end."""
        if self._superseded is not None:
            raise self._superseded
        if self.newest is not None and snapshot.step < self.newest.step:
            raise StoreError(
                f"life {self.life.number} of run {self.life.run} has saved step {self.newest.step} already;"
                f" step {snapshot.step} would never be found again",
                hint="a life's steps only grow: to go back, start a new life",
            )
        for image in snapshot.images:
            if max(len(image.table), len(image.values)) > DOCUMENT_BYTES:
                raise StateError(
                    f"the state's values are {len(image.values)} bytes and its tensor table"
                    f" {len(image.table)}, more than {DOCUMENT_BYTES}",
                    hint="keep large arrays as tensors",
                )
        try:
            blob = Blob(blake3="0" * 64, bytes=1, home=self._id(snapshot))
            empty = Part(rank=0, world=1, bytes=0, table=blob, values=blob, chunks=())
            Manifest.decode(self._manifest(snapshot, (empty,)).encode(), where=f"step {snapshot.step}")
        except (Damaged, ValueError, TypeError, OverflowError) as error:
            raise StateError(f"what the snapshot says about itself can't be saved: {error}") from error

    def _forget_missing(self, blobs: Iterable[Blob]) -> int:
        """See which of these the store has lost: they are sent again. Returns how many."""
        gone = missing(self._store, self.life.run, list(blobs))
        with self._guard:
            self._known = {key: blob for key, blob in self._known.items() if blob not in gone}
        self._look_at = self._clock() + LOOK_SECONDS
        if gone:
            self._put_right.append(
                f"{len(gone)} chunks of run {self.life.run} were removed from {self._store.location}"
                " by somebody else, and are sent again: does a lifecycle rule reach them?"
            )
        return len(gone)

    def _send(self, snapshot: Snapshot, *, tally: Tally, cancelled: Cancel | None) -> tuple[Part, ...]:
        """Every object that is not in the store already, many at once; the parts that name them all."""
        own = self._id(snapshot)
        tables = [_checked_table(image) for image in snapshot.images]
        _check_together(tables)
        pieces = [cut(table) for table in tables]
        blobs: dict[tuple[int, int], Blob] = {}
        placing = Placing(self._store, self.life.run, own, known=self._known, guard=self._guard)

        def place(at: tuple[int, int], content: Body) -> None:
            blobs[at], sent = placing.place(content)
            tally.add(len(content), sent=sent)

        def send(at: tuple[int, int]) -> None:
            image, index = snapshot.images[at[0]], at[1]
            if index < 0:
                place(at, image.table if index == -2 else image.values)
                return
            offset, size = pieces[at[0]][index]
            # Released at once: an error's traceback would keep the slice, and the arena could not be closed.
            with image.image.cast("B")[offset : offset + size] as content:
                place(at, content)

        work = [(rank, index) for rank, of_rank in enumerate(pieces) for index in range(-2, len(of_rank))]
        each(work, send, workers=self._workers, cancelled=cancelled)
        return tuple(
            Part(
                rank=rank,
                world=len(tables),
                bytes=table.bytes,
                table=blobs[rank, -2],
                values=blobs[rank, -1],
                chunks=tuple(
                    Chunk(
                        offset=offset,
                        bytes=size,
                        blake3=blobs[rank, index].blake3,
                        home=blobs[rank, index].home,
                    )
                    for index, (offset, size) in enumerate(pieces[rank])
                ),
            )
            for rank, table in enumerate(tables)
        )

    def _manifest(self, snapshot: Snapshot, parts: tuple[Part, ...]) -> Manifest:
        return Manifest(
            run=self.life.run,
            life=self.life.number,
            step=snapshot.step,
            epoch=snapshot.epoch,
            reason=snapshot.reason,
            created_at=datetime.now(timezone.utc),
            nonce=self.life.nonce,
            parent=self.parent.id if self.parent else None,
            metrics=snapshot.metrics,
            environment=snapshot.environment,
            parts=parts,
        )

    def _publish(self, manifest: Manifest) -> Manifest:
        """Put the manifest in its place. The one that is there, if it is ours and says the same."""
        create_only = self._store.limits.create_only
        if not create_only and (found := self._standing(manifest)):
            return found
        body = manifest.encode()
        if len(body) > DOCUMENT_BYTES:
            raise StateError(f"the manifest of step {manifest.step} would be {len(body)} bytes long")
        key = layout.manifest(manifest.run, manifest.id)
        try:
            self._store.put(key, body, create_only=create_only)
        except AlreadyExists as error:
            found = self._standing(manifest)
            if found is None:
                raise StoreError(f"{key} in {self._store.location} was there and is gone") from error
            return found
        return Manifest.decode(body)

    def _standing(self, manifest: Manifest) -> Manifest | None:
        """The manifest that this life put there before: an answer was lost, or the step is saved again."""
        where = f"{layout.manifest(manifest.run, manifest.id)} in {self._store.location}"
        try:
            found = read_manifest(self._store, manifest.run, manifest.id)
        except NotFound:
            return None
        except Damaged as error:
            raise StoreError(f"{where} is taken by something that is no manifest: {error}") from error
        if found.nonce != manifest.nonce:
            self._superseded = Superseded(f"{where} was written by another owner of life {manifest.life}")
            raise self._superseded
        if _content(found) != _content(manifest):
            raise StoreError(
                f"{where} has been saved by this life already, with other content",
                hint="a step is saved once: go on to the next step before saving again",
            )
        return found

    def _acknowledge(self, manifest: Manifest) -> None:
        try:
            put_back = hold(self._store, self.life)
        except Superseded as error:
            self._superseded = error
            raise
        if put_back:
            self._put_right.append(
                f"the claim of life {self.life.number} was removed by somebody; it is put back"
            )
            if self._forget_missing(manifest.blobs()):
                raise StoreError(
                    f"the claim and chunks of run {self.life.run} were removed from {self._store.location}",
                    hint="the next save sends them again; find out who removes objects there",
                )
        self.acknowledged = manifest

    def _id(self, snapshot: Snapshot) -> CheckpointId:
        return CheckpointId(self.life.number, snapshot.step)


def _checked_table(image: Image) -> TensorTable:
    try:
        table = TensorTable.decode(image.table)
    except Damaged as error:
        raise StateError(f"the snapshot's tensor table can't be saved: {error}") from error
    if table.bytes != image.image.nbytes:
        raise StateError(f"the snapshot has {image.image.nbytes} bytes, its table says {table.bytes}")
    return table


def _check_together(tables: Sequence[TensorTable]) -> None:
    """What a rank leaves to another one must be there, or nobody could restore it."""
    try:
        check_owners(tables, where="the snapshot")
        if len(tables) > 1:
            whole_tensors(tables, where="the snapshot")
    except Damaged as error:
        raise StateError(str(error)) from error


def _by_content(manifest: Manifest | None) -> dict[str, Blob]:
    return {blob.blake3: blob for blob in manifest.blobs()} if manifest else {}


def _content(manifest: Manifest) -> list[tuple[str, int]]:
    """What a checkpoint holds, wherever it lies."""
    return [(blob.blake3, blob.bytes) for blob in manifest.blobs()]
