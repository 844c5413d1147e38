"""Removes what the policy lets go, and nothing that anyone may still need, whoever else is at work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from outlive.errors import Damaged, NotFound, StoreError
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.bounds import Bounds, bounds_by_hand, owners_bounds
from outlive.store.commit import Committer
from outlive.store.layout import CheckpointId
from outlive.store.leftovers import old_events, old_requests
from outlive.store.lives import check_newest, newest_life
from outlive.store.retention import Keep, Saved, retained, without_metric
from outlive.store.survey import Survey, keys, lacks, survey

GRACE: Final = timedelta(hours=24)
_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would go, what stays, and why not more. Returned by ``prune``: what went."""

    run: str
    life: int
    """The newest life when this was planned."""
    kept: tuple[CheckpointId, ...]
    checkpoints: tuple[CheckpointId, ...] = ()
    """These go. Their chunks follow in a later pass, unless another checkpoint names them."""
    chunks: tuple[str, ...] = ()
    """The keys of the chunks that go."""
    chunk_bytes: int = 0
    leftovers: tuple[str, ...] = ()
    """The keys of events and requests that go."""
    later_bytes: int = 0
    """Held by chunks that nothing will name any more, and that are spared for now."""
    notes: tuple[str, ...] = ()
    """For people: what was left alone, and why."""


def plan_prune(
    store: ObjectStore,
    run: str,
    keep: Keep,
    *,
    owner: Committer | None = None,
    grace: timedelta = GRACE,
    full: bool = False,
) -> Plan:
    """What ``prune`` would remove now; nothing is touched.

    ``owner`` is the committer of the newest life, in its own process. Without one (by hand, from any machine)
    nothing goes that a life at work may rely on. ``full``: the store has no room left, so chunks that no
    manifest names go whatever their age, which is for those who may still read them, and for nobody's safety.
    """
    life = owner.life.number if owner else newest_life(store, run)
    found = survey(store, run)
    bounds = owners_bounds(owner, found) if owner else bounds_by_hand(store, found, life=life, grace=grace)
    everything = tuple(sorted(found.written))
    if isinstance(bounds, str) or not found.whole.intersection(found.order):
        why = bounds if isinstance(bounds, str) else "no checkpoint is whole"
        return Plan(run=run, life=life, kept=everything, notes=(f"nothing goes: {why}",))
    going, notes = _going(store, found, keep=keep, bounds=bounds, grace=grace)
    if bounds.spare_chunks:
        notes = (*notes, f"no chunk goes: {bounds.spare_chunks}")
    kept = tuple(checkpoint for checkpoint in everything if checkpoint not in going)
    plan = Plan(run=run, life=life, kept=kept, checkpoints=tuple(sorted(going)), notes=notes)
    plan = _with_chunks(plan, found, bounds=bounds, before=None if full else found.now - grace)
    return _with_leftovers(store, plan, found, grace=grace)


def prune(
    store: ObjectStore,
    run: str,
    keep: Keep,
    *,
    owner: Committer | None = None,
    grace: timedelta = GRACE,
    full: bool = False,
) -> Plan:
    """Remove it: manifests first, then the chunks that no manifest named before that either, then the rest.

    The lives are listed again before each batch: ``Superseded``, by hand ``StoreError``, if one has come.
    """
    plan = plan_prune(store, run, keep, owner=owner, grace=grace, full=full)

    def still_newest() -> None:
        if owner:
            check_newest(store, owner.life)
        elif newest_life(store, run, after=plan.life) != plan.life:
            raise StoreError(
                f"a new life of run {run} in {store.location} has begun meanwhile", hint="prune again"
            )

    _remove(store, [layout.manifest(run, going) for going in plan.checkpoints], first=still_newest)
    _remove(store, plan.chunks, first=still_newest)
    _remove(store, plan.leftovers, first=still_newest)
    return plan


def _going(
    store: ObjectStore, found: Survey, *, keep: Keep, bounds: Bounds, grace: timedelta
) -> tuple[set[CheckpointId], tuple[str, ...]]:
    """The checkpoints that go, and what to say about those that stay although nobody can use them."""
    whole = [checkpoint for checkpoint in found.order if checkpoint in found.whole]
    abandoned = sorted(found.whole.difference(found.order), reverse=True)
    staying = retained(_saved(found, whole), keep)
    # Whoever went back may want to come back again: for a while, and as long as there is little else.
    staying |= retained(_saved(found, whole + abandoned), Keep(last=keep.last), protected=bounds.protected)
    if found.rewound_at is not None and found.now - found.rewound_at <= grace:
        staying |= set(abandoned)
    going = {*whole, *abandoned} - staying
    notes = without_metric(_saved(found, whole), keep)
    for checkpoint in sorted(found.manifests.keys() - found.whole):
        old = found.now - found.written[checkpoint] > grace
        if old and checkpoint not in bounds.protected and _is_broken(store, found, checkpoint):
            going.add(checkpoint)
        else:
            notes.append(f"{checkpoint} stays, but lacks chunks")
    return going, tuple(notes)


def _is_broken(store: ObjectStore, found: Survey, checkpoint: CheckpointId) -> bool:
    """Ask for a chunk that was not listed: a listing that leaves something out must not cost a checkpoint."""
    for key, blob in lacks(found.manifests[checkpoint], found.chunks):
        try:
            if len(store.get(key, at_most=blob.bytes)) != blob.bytes:
                return True
        except (Damaged, NotFound):
            return True
    return False


def _with_chunks(plan: Plan, found: Survey, *, bounds: Bounds, before: datetime | None) -> Plan:
    """The same plan with the chunks that go: named by no manifest, not even one that goes now."""
    kept = set(plan.kept)
    staying = {key for i, manifest in found.manifests.items() if i in kept for key, _ in keys(manifest)}
    named = {key for manifest in found.manifests.values() for key, _ in keys(manifest)}
    going: list[str] = []
    going_bytes = later_bytes = 0
    for key, info in found.chunks.items():
        home = layout.parse_chunk(plan.run, key)
        spared = bounds.spare_chunks or key in named
        old = before is None or info.modified < before
        if not spared and old and home and bounds.up_to and home[0] <= bounds.up_to:
            going.append(key)
            going_bytes += info.size
        elif key not in staying:
            later_bytes += info.size
    return replace(plan, chunks=tuple(going), chunk_bytes=going_bytes, later_bytes=later_bytes)


def _with_leftovers(store: ObjectStore, plan: Plan, found: Survey, *, grace: timedelta) -> Plan:
    saved = {checkpoint.life for checkpoint in found.written}
    before = found.now - grace
    events = old_events(store, plan.run, life=plan.life, saved=saved, before=before)
    requests = old_requests(store, plan.run, life=plan.life, now=found.now, grace=grace)
    return replace(plan, leftovers=(*events, *requests))


def _remove(store: ObjectStore, going: Sequence[str], *, first: Callable[[], None]) -> None:
    for at in range(0, len(going), _BATCH):
        first()
        store.delete(going[at : at + _BATCH])


def _saved(found: Survey, order: Sequence[CheckpointId]) -> list[Saved]:
    manifests = [found.manifests[checkpoint] for checkpoint in order]
    return [Saved(id=m.id, metrics=m.metrics, created_at=m.created_at) for m in manifests]
