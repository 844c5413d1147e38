"""Which runs a store holds, and how each stands."""

from collections.abc import Iterator
from dataclasses import dataclass

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.events import Event, last_event
from outlive.store.layout import CheckpointId
from outlive.store.lives import Claim, newest_life, read_claim
from outlive.store.manifest import Manifest
from outlive.store.newest import listed, preferred, read_manifest, rewinds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """How a run stands. ``newest``: the best checkpoint whose manifest can be read; its chunks were not."""

    run: str
    newest: Manifest | None
    checkpoints: int
    abandoned: int
    """Of them, those that a rewind left behind."""
    lives: int
    last_claim: Claim | None
    last_event: Event | None
    """The newest thing that the last life has recorded: how it ended, if it has."""
    stored_bytes: int | None = None


def runs(store: ObjectStore) -> Iterator[str]:
    """All runs, in the order of their keys: names below which a life was claimed or a checkpoint lies."""
    after = ""
    while True:
        run = _next_name(store, after)
        if run is None:
            return
        if any(_has(store, prefix) for prefix in (layout.lives(run), layout.manifests(run))):
            yield run
        after = layout.after_run(run)


def summarize(store: ObjectStore, run: str, *, sizes: bool = False) -> RunSummary:
    """How ``run`` stands. With ``sizes`` everything below it is listed and added up, which takes longer."""
    every = listed(store, run)
    order = preferred(every, rewinds(store, run))
    last = newest_life(store, run)
    return RunSummary(
        run=run,
        newest=_first_readable(store, run, order),
        checkpoints=len(every),
        abandoned=len(every) - len(order),
        lives=last,
        last_claim=_claim(store, run, last),
        last_event=last_event(store, run, last) if last else None,
        stored_bytes=sum(info.size for info in store.list(layout.run_prefix(run))) if sizes else None,
    )


def _next_name(store: ObjectStore, after: str) -> str | None:
    """The next name at the top that a run could have; other people's objects are read past."""
    for info in store.list("", after=after):
        run = layout.run_of(info.key)
        if run is not None:
            return run
    return None


def _has(store: ObjectStore, prefix: str) -> bool:
    return next(iter(store.list(prefix)), None) is not None


def _first_readable(store: ObjectStore, run: str, order: list[CheckpointId]) -> Manifest | None:
    for checkpoint in order:
        try:
            return read_manifest(store, run, checkpoint)
        except (Damaged, NotFound):
            continue
    return None


def _claim(store: ObjectStore, run: str, life: int) -> Claim | None:
    try:
        return read_claim(store, run, life) if life else None
    except (Damaged, NotFound):
        return None
