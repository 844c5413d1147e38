"""How far a remover may go, whoever it is: the argument is in docs/FORMAT.md, "Removal"."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from outlive.errors import Damaged, StoreError
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.layout import MAX_STEP, CheckpointId
from outlive.store.leftovers import ENDED
from outlive.store.lives import read_adoption
from outlive.store.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What must stay, whatever the policy says."""

    protected: frozenset[CheckpointId]
    up_to: CheckpointId | None
    """Chunks whose home is later than this stay: a commit under way may be sending them. None: all stay."""
    spare_chunks: str
    """Why no chunk goes at all; empty if some may."""


def owners_bounds(owner: Committer, found: Survey) -> Bounds:
    """For the newest life itself, which knows what it relies on. It must have been acknowledged once."""
    if owner.acknowledged is None:
        raise StoreError(
            f"life {owner.life.number} of run {owner.life.run} has no checkpoint of its own yet",
            hint="prune after its first save",
        )
    ours = [manifest.id for manifest in (owner.parent, owner.newest, owner.acknowledged) if manifest]
    # From the survey, not from the owner: what was committed since is in no marking yet.
    seen = [checkpoint for checkpoint in found.manifests if checkpoint.life == owner.life.number]
    return Bounds(
        protected=frozenset(ours),
        up_to=max(seen, default=None),
        spare_chunks=_unreadable(found),
    )


def bounds_by_hand(store: ObjectStore, found: Survey, *, life: int, grace: timedelta) -> "Bounds | str":
    """For a remover that owns no life, beside a newest life that may be at work. Or why nothing may go."""
    if life == 0:
        return "the run has no life"
    try:
        adoption = read_adoption(store, found.run, life)
    except Damaged as error:
        return f"what life {life} resumed from can't be read ({error})"
    if adoption is None:
        claimed = max((info.modified for info in store.list(layout.of_life(found.run, life))), default=None)
        if claimed is None or found.now - claimed <= grace:
            return f"life {life} was claimed and is still choosing what to resume from"
    parent = adoption.checkpoint if adoption else None
    spare = _unreadable(found)
    if parent is not None and parent not in found.manifests:
        spare = spare or f"life {life} resumed from {parent}, which can't be read"
    return Bounds(
        protected=frozenset({parent} if parent else ()),
        up_to=_up_to(found, life, over=_is_over(store, found, life=life, grace=grace)),
        spare_chunks=spare,
    )


def _up_to(found: Survey, life: int, *, over: bool) -> CheckpointId | None:
    """Chunks of earlier lives, and of one that is over as far as it got: its last save may yet be made."""
    own = [checkpoint for checkpoint in found.manifests if checkpoint.life == life]
    if over and own:
        return max(own)
    return CheckpointId(life - 1, MAX_STEP) if life > 1 else None


def _is_over(store: ObjectStore, found: Survey, *, life: int, grace: timedelta) -> bool:
    """Whether that this life ended is its last word, and an old one."""
    said: list[tuple[int, str, datetime]] = []
    for info in store.list(layout.histories(found.run, life)):
        key = layout.parse_history(found.run, info.key)
        if key is not None:
            said.append((key.sequence, key.event, info.modified))
    _, event, at = max(said, default=(0, "", found.now))
    return event == ENDED and found.now - at > grace


def _unreadable(found: Survey) -> str:
    names = ", ".join(str(checkpoint) for checkpoint in sorted(found.unreadable)[:3])
    return f"{len(found.unreadable)} manifests can't be read ({names})" if names else ""
