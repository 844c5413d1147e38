"""How large the run's checkpoints are and how fast it steps, read from what it saved last."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from outlive.errors import ConfigError, Damaged
from outlive.objects.interface import ObjectStore
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Manifest
from outlive.store.newest import newest_first, read_manifest
from outlive.store.runs import runs
from outlive_agent.doctor.finding import Finding, ok, warning
from outlive_agent.units import bytes_text

_LOOKED_AT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a last save has to send. ``whole_bytes``: the checkpoint with what lies in the store already."""

    whole_bytes: int
    sent_bytes: int
    source: str
    run: str = ""
    step: int | None = None
    step_seconds: float | None = None


def newest_state(store: ObjectStore, run: str) -> State | None:
    """Of the named run, or of the only one there is. None if nothing is saved yet."""
    name = run or _only(store)
    if not name:
        return None
    found = list(islice(newest_first(store, name), _LOOKED_AT))
    if not found:
        return None
    manifests = _readable(store, name, found)
    newest = manifests[0]
    return State(
        whole_bytes=sum(blob.bytes for blob in set(newest.blobs())),
        sent_bytes=max(_sent(manifest) for manifest in manifests),
        source=f"step {newest.step:,}",
        run=name,
        step=newest.step,
        step_seconds=_step_seconds(manifests),
    )


def given_state(size: int) -> State:
    """What ``--state`` says."""
    if size <= 0:
        raise ConfigError("a state of no bytes", hint="write --state 14GB")
    return State(whole_bytes=size, sent_bytes=size, source="as given")


def checkpoint(state: State | None, run: str) -> Finding:
    if state is None:
        who = f"run {run} has none yet" if run else "none yet"
        return ok("checkpoint", f"{who}: its size is not known", bytes=None)
    figures = {
        "run": state.run,
        "step": state.step,
        "bytes": state.whole_bytes,
        "sent_bytes": state.sent_bytes,
    }
    if not state.run:
        return ok("checkpoint", f"{bytes_text(state.whole_bytes)}, as given", **figures)
    part = "" if state.sent_bytes >= state.whole_bytes else f", {bytes_text(state.sent_bytes)} of it new"
    seen = f"{state.run}, step {state.step:,}: {bytes_text(state.whole_bytes)}{part}"
    return ok("checkpoint", seen, **figures)


def unreadable(error: Damaged) -> Finding:
    return warning("checkpoint", str(error), change=error.hint or "outlive ls shows which can be used")


def _only(store: ObjectStore) -> str:
    names = []
    for name in runs(store):
        names.append(name)
        if len(names) > 1:
            return ""
    return names[0] if names else ""


def _readable(store: ObjectStore, run: str, found: Sequence[CheckpointId]) -> list[Manifest]:
    """At least one; what is wrong with the newest is raised if none is."""
    manifests, errors = [], []
    for one in found:
        try:
            manifests.append(read_manifest(store, run, one))
        except Damaged as error:  # an older one tells as much
            errors.append(error)
    if not manifests:
        raise errors[0]
    return manifests


def _sent(manifest: Manifest) -> int:
    """What lies under this checkpoint's own name was sent for it."""
    return sum(blob.bytes for blob in set(manifest.blobs()) if blob.home == manifest.id)


def _step_seconds(manifests: list[Manifest]) -> float | None:
    """From two checkpoints of one life."""
    for newer, older in pairwise(manifests):
        steps = newer.step - older.step
        seconds = (newer.created_at - older.created_at).total_seconds()
        if newer.life == older.life and steps > 0 and seconds > 0:
            return seconds / steps
    return None
