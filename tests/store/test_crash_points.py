"""Every operation of the store dies before and after each of its effects; after each death all holds."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from fakes.checkpoints import IDENTITY, Clock, begin, image, keys, restored, snapshot
from fakes.crashing import CrashingStore, Death, When, crashing_disk
from fakes.invariants import check, check_no_garbage, state
from fakes.stores import Killed, UnconditionalStore
from outlive.objects.interface import ObjectStore
from outlive.objects.local import LocalStore
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.events import EventLog
from outlive.store.layout import CheckpointId
from outlive.store.lives import Life, adopt, claim, newest_life
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.prune import prune
from outlive.store.requests import put_request
from outlive.store.retention import Keep
from outlive.store.verify import verify

DAY = timedelta(days=1, seconds=1)
NO_GRACE = timedelta(seconds=-1)
"""Age protects nothing: a disk's clock can't be moved, and what is safe must be safe without it."""


@dataclass
class Scene:
    """A run of two lives, with garbage of every kind, in a store that is not in danger yet."""

    store: ObjectStore
    owner: Committer
    acknowledged: list[int] = field(default_factory=list)

    def save(self, committer: Committer, step: int, *, ranks: int = 1) -> None:
        """Every rank holds the same tensors, and values of its own."""
        images = tuple(image(*state(step), values=b"%d of %d" % (rank, step)) for rank in range(ranks))
        committer.commit(replace(snapshot(step, b""), images=images))
        self.acknowledged.append(step)


def scene_in(store: ObjectStore) -> Scene:
    """Life 1 saved 1 to 3; life 2 resumed, was refused one save half-way, and saved 5 and 6."""
    first = begin(store)
    scene = Scene(store=store, owner=first)
    for step in (1, 2, 3):
        scene.save(first, step)
    EventLog(store, first.life).write("started")
    put_request(store, "gpt", "reclaim", life=1)
    scene.owner = begin(store)
    store.put(layout.chunk("gpt", CheckpointId(2, 4), blake3="0" * 64), b"of a save that was never finished")
    for step in (5, 6):
        scene.save(scene.owner, step)
    return scene


Operation = Callable[[ObjectStore, Scene], object]


def owner_in(store: ObjectStore, scene: Scene) -> Committer:
    """The committer of life 2, as it is in the process that dies."""
    committer = Committer(store, scene.owner.life, parent=scene.owner.parent, workers=1)
    committer.newest = committer.acknowledged = scene.owner.newest
    committer._known = dict(scene.owner._known)
    return committer


def claims(store: ObjectStore, scene: Scene) -> None:
    claim(store, "gpt", identity=IDENTITY)


def adopts(store: ObjectStore, scene: Scene) -> None:
    adopt(store, claim(store, "gpt", identity=IDENTITY), CheckpointId(2, 6))


def goes_back(store: ObjectStore, scene: Scene) -> None:
    adopt(store, claim(store, "gpt", identity=IDENTITY), CheckpointId(2, 6), rewind=True)


def saves(store: ObjectStore, scene: Scene) -> None:
    committer = owner_in(store, scene)
    for step in (7, 8):
        scene.save(committer, step)


def saves_of_ranks(store: ObjectStore, scene: Scene) -> None:
    committer = owner_in(store, scene)
    for step in (7, 8):
        scene.save(committer, step, ranks=3)


def saves_what_was_saved(store: ObjectStore, scene: Scene) -> None:
    committer = Committer(store, scene.owner.life, parent=scene.owner.parent, workers=1)
    scene.save(committer, 6)


def saves_without_its_claim(store: ObjectStore, scene: Scene) -> None:
    committer = owner_in(store, scene)
    committer.life = Life(run="gpt", number=committer.life.number, nonce=committer.life.nonce)
    scene.save(committer, 7)


def lives(store: ObjectStore, scene: Scene) -> None:
    committer = begin(store)
    committer._workers = 1
    for step in (7, 8):
        scene.save(committer, step)
    for _ in range(2):
        prune(store, "gpt", Keep(last=1), owner=committer, grace=NO_GRACE)


def prunes(store: ObjectStore, scene: Scene) -> None:
    for _ in range(2):
        prune(store, "gpt", Keep(last=1), owner=owner_in(store, scene), grace=NO_GRACE)


def prunes_by_hand(store: ObjectStore, scene: Scene) -> None:
    for _ in range(2):
        prune(store, "gpt", Keep(last=1), grace=NO_GRACE)


def asks(store: ObjectStore, scene: Scene) -> None:
    put_request(store, "gpt", "save", life=2)


def records(store: ObjectStore, scene: Scene) -> None:
    log = EventLog(store, scene.owner.life)
    for event in ("started", "ended"):
        log.write(event)


def reads(store: ObjectStore, scene: Scene) -> None:
    assert restored(store) is not None
    for checkpoint in checkpoints(store, "gpt"):
        assert verify(store, read_manifest(store, "gpt", checkpoint)).ok


OPERATIONS: dict[str, tuple[Operation, int]] = {
    "claim": (claims, 1),
    "adopt": (adopts, 2),
    "rewind": (goes_back, 2),
    "save": (saves, 5),
    "save of ranks": (saves_of_ranks, 10),
    "save again": (saves_what_was_saved, 1),
    "save without its claim": (saves_without_its_claim, 3),
    "a whole life": (lives, 15),
    "prune": (prunes, 8),
    "prune by hand": (prunes_by_hand, 4),
    "request": (asks, 1),
    "history": (records, 2),
    "restore and verify": (reads, 0),
}
"""Each with the fewest effects that it has: an enumeration that got lost would prove nothing."""


def recover(scene: Scene, clock: "Clock | None") -> None:
    """The next machine: it resumes, saves, and removes the garbage, and again all holds."""
    check(scene.store, max(scene.acknowledged))
    begun = newest_life(scene.store, "gpt")
    owner = begin(scene.store)
    assert owner.life.number > begun
    assert owner.parent is not None
    step = owner.parent.step + 1
    scene.save(owner, step)
    check(scene.store, step)
    if clock is not None:
        clock.advance(DAY)
    grace = NO_GRACE if clock is None else timedelta(days=1)
    for _ in range(3):
        prune(scene.store, "gpt", Keep(last=1), owner=owner, grace=grace)
    check(scene.store, step)
    check_no_garbage(scene.store, {owner.parent.id, CheckpointId(owner.life.number, step)})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [MemoryStore, UnconditionalStore])
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_death_at_any_effect_breaks_a_promise(name: str, kind: type[MemoryStore], when: When) -> None:
    """The newest acknowledged checkpoint restores, nothing names what isn't there, and prune tidies up."""
    operation, fewest = OPERATIONS[name]
    for at in range(200):
        clock = Clock()
        scene = scene_in(kind(clock=clock))
        clock.advance(DAY)
        if operation is saves_without_its_claim:
            scene.store.delete(keys(scene.store, layout.of_life("gpt", 2))[:1])
        death = Death(at, when)
        with suppress(Killed):
            operation(CrashingStore(scene.store, death), scene)
        recover(scene, clock)
        if not death.came:
            assert at >= fewest
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_death_at_any_touch_of_the_disk_breaks_a_promise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a directory: between any two files, names and flushes that the store makes there."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a process that dies takes no disk with it
    operation, fewest = OPERATIONS[name]
    prepared = scene_in(LocalStore(tmp_path / "prepared"))
    for at in range(400):
        place = tmp_path / f"store-{at}"
        shutil.copytree(tmp_path / "prepared", place)
        scene = Scene(store=LocalStore(place), owner=prepared.owner, acknowledged=[*prepared.acknowledged])
        if operation is saves_without_its_claim:
            scene.store.delete(keys(scene.store, layout.of_life("gpt", 2))[:1])
        death = Death(at, "before")  # after one is before the next
        with suppress(Killed), crashing_disk(death):
            operation(LocalStore(place), scene)
        recover(scene, None)
        if not death.came:
            assert at >= 3 * fewest
            return
    raise AssertionError("it never ended")
