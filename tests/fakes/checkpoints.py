"""Small states, and what it takes to make checkpoints of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.objects.memory import MemoryStore
from outlive.store.commit import Committer, Image, Snapshot
from outlive.store.fetch import restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.lives import Identity, Life, adopt, claim
from outlive.store.manifest import Manifest, Reason
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.table import TensorEntry, TensorTable

IDENTITY = Identity(host="host-a", machine="0" * 32, pid=7, command=("python", "train.py"), cwd="/job")


@dataclass
class Clock:
    """The store's clock, moved by hand."""

    time: datetime = datetime(2026, 12, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, by: timedelta) -> None:
        self.time += by


def table_of(*sizes: int) -> TensorTable:
    """Tensors of these sizes, each in a group, and so in a chunk, of its own."""
    entries: list[TensorEntry] = []
    offset = 0
    for number, size in enumerate(sizes):
        entries.append(
            TensorEntry(
                path=f"model/{number}",
                dtype="uint8",
                shape=(size,),
                offset=offset,
                bytes=size,
                device="cpu",
                group=number,
            )
        )
        offset += (size + 63) // 64 * 64
    return TensorTable(bytes=offset, tensors=tuple(entries))


def image_of(*tensors: bytes) -> bytes:
    return b"".join(tensor + bytes(-len(tensor) % 64) for tensor in tensors)


def snapshot(
    step: int,
    *tensors: bytes,
    values: bytes = b"{}",
    reason: Reason = "interval",
    metrics: Mapping[str, float] | None = None,
) -> Snapshot:
    """A snapshot of these tensors, one chunk each."""
    return Snapshot(
        step=step,
        epoch=None,
        reason=reason,
        metrics=metrics or {},
        images=(image(*tensors, values=values),),
    )


def image(*tensors: bytes, values: bytes = b"{}") -> Image:
    """What one rank hands over: these tensors, one chunk each."""
    return Image(
        table=table_of(*(len(tensor) for tensor in tensors)).encode(),
        values=values,
        image=memoryview(bytearray(image_of(*tensors))),
    )


def begin(store: ObjectStore, run: str = "gpt", *, back_to: CheckpointId | None = None) -> Committer:
    """A new life that resumes from the newest checkpoint, or goes back on purpose; ready to commit."""
    life = claim(store, run, identity=IDENTITY)
    order = checkpoints(store, run)
    parent = back_to or (order[0] if order else None)
    adopt(store, life, parent, rewind=back_to is not None)
    return Committer(store, life, parent=read_manifest(store, run, parent) if parent else None)


def later_life(life: Life) -> Life:
    return Life(run=life.run, number=life.number + 1, nonce="f" * 32)


@dataclass
class Passed:
    """What a restore passed over."""

    ids: list[CheckpointId] = field(default_factory=list)
    errors: list[Damaged | NotFound] = field(default_factory=list)

    def __call__(self, checkpoint: CheckpointId, error: Damaged | NotFound) -> None:
        self.ids.append(checkpoint)
        self.errors.append(error)


def restored(store: ObjectStore, run: str = "gpt") -> tuple[Manifest, bytes] | None:
    """The newest whole checkpoint and its image."""
    found = restore_newest(store, run, lambda size: memoryview(bytearray(size)), on_damaged=Passed())
    return (found.manifest, bytes(found.image)) if found else None


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def hurt(store: MemoryStore, key: str, *, by: str) -> None:
    """Damage an object: ``missing``, ``short``, ``long`` or ``altered``."""
    body = store.get(key, at_most=2**30)
    store.delete([key])
    changed = {"short": body[:-1], "long": body + b"x", "altered": bytes([body[0] ^ 1]) + body[1:]}
    if by != "missing":
        store.put(key, changed[by])
