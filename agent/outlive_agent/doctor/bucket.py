"""Whether the store answers, is the one that is meant, and does what checkpoints need of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from outlive.errors import NotFound, StoreError
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import ROUNDS, WRITERS, Versioned, probe
from outlive_agent.doctor.finding import Finding, ok, problem, warning
from outlive_agent.doctor.scratch import Scratch
from outlive_agent.units import duration_text

SKEW_WARNING_SECONDS: Final = 30.0
SKEW_PROBLEM_SECONDS: Final = 10 * 60.0
"""S3 refuses requests whose time is 15 min off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A store that answers. ``skew``: how far this machine's clock is ahead of the store's."""

    seconds: float
    skew: timedelta


def reach(store: ObjectStore) -> Reached:
    """Ask it one thing."""
    began = time.monotonic()
    before = datetime.now(timezone.utc)
    theirs = store.now()
    seconds = time.monotonic() - began
    middle = before + timedelta(seconds=seconds / 2)
    # An answer's Date has no fractions: on average it is half a second older than it says.
    return Reached(seconds=seconds, skew=middle - theirs - timedelta(seconds=0.5))


def reached(found: Reached) -> Finding:
    return ok("bucket", f"answers in {duration_text(found.seconds)}", answer_seconds=round(found.seconds, 4))


def clock(found: Reached) -> Finding:
    """A wrong clock makes signatures invalid, and misplaces deadlines in the journal."""
    off = found.skew.total_seconds()
    figures = {"ahead_seconds": round(off, 1)}
    if abs(off) <= 2.0:
        return ok("clock", "agrees with the store's", **figures)
    seen = f"{duration_text(abs(off))} {'ahead of' if off > 0 else 'behind'} the store's"
    change = "set this machine's clock: chrony or systemd-timesyncd, timedatectl set-ntp true"
    if abs(off) >= SKEW_PROBLEM_SECONDS:
        return problem("clock", f"{seen}: S3 refuses requests from 15 min on", change=change, **figures)
    if abs(off) >= SKEW_WARNING_SECONDS:
        return warning("clock", seen, change=change, **figures)
    return ok("clock", seen, **figures)


def writes(store: ObjectStore, scratch: Scratch) -> Finding:
    """Put, read, list and delete one small object. Raises what the store says if it can't be put."""
    key = scratch.key("written")
    body = b"outlive doctor: may be removed"
    store.put(key, body)
    try:
        held = store.get(key, at_most=4096)
        listed = [info.key for info in store.list(f"{scratch.folder}/")]
    except NotFound:
        held, listed = b"", []
    if held != body:
        change = "this store loses what it said it holds: choose another"
        return problem("writes", "what was just written can't be read back", change=change)
    try:
        store.delete([key])
    except StoreError as error:
        change = "allow s3:DeleteObject on the prefix, else every checkpoint stays and costs for ever"
        return warning("writes", f"writes and reads, but can't delete: {error}", change=change, deletes=False)
    if key not in listed:
        change = "a newer life or checkpoint may be seen late here: let one machine end before the next"
        return warning("writes", "a listing does not show what was just written", change=change, deletes=True)
    return ok("writes", "writes, reads, lists and deletes", deletes=True)


def versions(store: ObjectStore) -> Sequence[Finding]:
    """Nothing is found where the store can't say."""
    kept = store.keeps_versions() if isinstance(store, Versioned) else None
    if not kept:
        return []
    return [
        warning(
            "versions",
            "the bucket keeps what is removed, as old versions: what is pruned goes on costing",
            change="a lifecycle rule that ends noncurrent versions and their delete markers after a day",
            keeps_versions=True,
        )
    ]


def create_only(store: ObjectStore, scratch: Scratch) -> Sequence[Finding]:
    """Whether one of many concurrent writers wins: two machines that both believe they own a run."""
    found = probe(store, folder=scratch.key("create-only"))
    if found.create_only:
        words = f"one of {WRITERS} concurrent writers wins, {ROUNDS} times of {ROUNDS}"
        return [ok("create-only", words, create_only=True)]
    return [
        warning(
            "create-only",
            "several writers create the same object: fencing is best effort",
            change="never start two machines on one run, or take a store that honours If-None-Match",
            create_only=False,
        )
    ]
