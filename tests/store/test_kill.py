"""Every request of a life is the last one, once before and once after it took effect."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from fakes.checkpoints import Clock, begin, snapshot
from fakes.invariants import check, check_no_garbage, state
from fakes.stores import FailingStore, Failure, Killed, UnconditionalStore
from outlive.errors import OutliveError
from outlive.objects.interface import ObjectStore
from outlive.objects.local import LocalStore
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.layout import CheckpointId
from outlive.store.lives import newest_life
from outlive.store.newest import checkpoints
from outlive.store.prune import prune
from outlive.store.retention import Keep

DAY = timedelta(days=1, seconds=1)
NO_GRACE = timedelta(seconds=-1)
"""Age protects nothing here: what is safe must be safe without it."""
Told = Callable[[int], None]
T = TypeVar("T")


def a_life(store: ObjectStore, told: Told) -> None:
    """Claim, resume, save twice, prune, save, prune. ``told`` hears of each acknowledged step."""
    committer = begin(store)
    step = committer.parent.step if committer.parent else 0
    for number in range(1, 4):
        committer.commit(snapshot(step + number, *state(step + number), values=b"%d" % (step + number)))
        told(step + number)
        if number > 1:
            prune(store, "gpt", Keep(last=2), owner=committer, grace=NO_GRACE)


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (MemoryStore, "killed before"),
        (MemoryStore, "killed after"),
        (MemoryStore, "refused"),
        (MemoryStore, "answer lost"),
        (UnconditionalStore, "killed after"),
        (UnconditionalStore, "answer lost"),
    ],
)
def test_no_acknowledged_checkpoint_is_lost_wherever_a_life_dies(
    kind: type[MemoryStore], failure: Failure
) -> None:
    """After each death the invariants hold, the next life goes on, and only garbage is removed."""
    for at in range(500):
        clock = Clock()
        store = kind(clock=clock)
        acknowledged = [0]
        a_life(store, acknowledged.append)
        clock.advance(DAY)
        failing = FailingStore(store, at=at, failure=failure)
        with suppress(Killed, OutliveError):
            a_life(failing, acknowledged.append)
        check(store, acknowledged[-1])
        clock.advance(DAY)
        a_life(store, acknowledged.append)
        check(store, acknowledged[-1])
        clock.advance(DAY)
        owner = begin(store)
        last = acknowledged[-1] + 1
        owner.commit(snapshot(last, *state(last)))
        clock.advance(DAY)
        for _ in range(3):
            prune(store, "gpt", Keep(last=1), owner=owner)
        check(store, last)
        assert owner.parent is not None
        check_no_garbage(store, {owner.parent.id, CheckpointId(owner.life.number, last)})
        if not failing.met:
            assert at > 40
            return
    raise AssertionError("the life never ended")


def test_a_directory_keeps_the_same_promises(tmp_path: Path) -> None:
    """Three lives on a disk: each resumes from the last, prunes, and leaves only whole checkpoints."""
    store = LocalStore(tmp_path / "store")
    acknowledged = [0]
    for _ in range(3):
        a_life(store, acknowledged.append)
        check(store, acknowledged[-1])
    assert acknowledged[-1] == 9
    assert len(checkpoints(store, "gpt")) == 3


@pytest.mark.parametrize("failure", ["killed before", "killed after"])
def test_a_rewind_that_dies_anywhere_has_happened_or_not(failure: Failure) -> None:
    """Going back is one record: the next life resumes from the target, or from where it would have anyway."""
    target, newest = CheckpointId(1, 1), CheckpointId(1, 3)
    for at in range(100):
        store = MemoryStore()
        a_life_without_prune(store)
        failing = FailingStore(store, at=at, failure=failure)
        with suppress(Killed):
            begin(failing, back_to=target)
        first = checkpoints(store, "gpt")[0]
        rewound = layout.adopted("gpt", newest_life(store, "gpt"), rewind=True)
        done = any(info.key == rewound for info in store.list("gpt/lives/"))
        assert first == (target if done else newest)
        if not failing.met:
            assert done
            return
    raise AssertionError("the rewind never ended")


def a_life_without_prune(store: ObjectStore) -> None:
    committer = begin(store)
    for step in (1, 2, 3):
        committer.commit(snapshot(step, *state(step)))


class Haunted(FailingStore):
    """At one request, somebody else gets to run first."""

    def __init__(self, store: ObjectStore, *, at: int, ghost: Callable[[], None]) -> None:
        super().__init__(store, at=at, failure="refused")
        self._ghost = ghost

    def around(self, action: str, key: str, request: Callable[[], T]) -> T:
        if self.requests == self._at:
            self.requests += 1
            self._ghost()
            return request()
        return super().around(action, key, request)


@pytest.mark.parametrize("kind", [MemoryStore, UnconditionalStore])
def test_two_lives_of_which_one_is_a_zombie_lose_nothing(kind: type[MemoryStore]) -> None:
    """Between any two requests of the newer life the older one may save and prune, acknowledged or not."""
    for at in range(500):
        clock = Clock()
        store = kind(clock=clock)
        zombie = begin(store)
        for step in (1, 2, 3):
            zombie.commit(snapshot(step, *state(step)))
        clock.advance(DAY)
        done: list[int] = []

        def ghost(store: MemoryStore = store, zombie: Committer = zombie) -> None:
            with suppress(OutliveError):
                zombie.commit(snapshot(4, *state(4)))
            with suppress(OutliveError):
                prune(store, "gpt", Keep(last=1), owner=zombie, grace=NO_GRACE)

        haunted = Haunted(store, at=at, ghost=ghost)
        a_life(haunted, done.append)
        said = zombie.acknowledged is not None and zombie.acknowledged.step == 4
        check(store, max(done), unacknowledged=() if said else (CheckpointId(1, 4),))
        if not haunted.met:
            return
    raise AssertionError("the life never ended")


@pytest.mark.parametrize(
    ("kind", "removed"),
    [
        (MemoryStore, "gpt/lives/000001."),
        (MemoryStore, "gpt/lives/"),
        (MemoryStore, "gpt/"),  # without create-only nothing would be left to tell the two apart
        (UnconditionalStore, "gpt/lives/000001."),
        (UnconditionalStore, "gpt/lives/"),
    ],
)
def test_a_fence_that_somebody_removes_still_lets_only_one_through(
    kind: type[MemoryStore], removed: str
) -> None:
    """Between any two requests of a save claims go and another machine begins: one is acknowledged."""
    for at in range(100):
        store = kind()
        ours = begin(store)
        others: list[Committer] = []

        def ghost(store: MemoryStore = store, others: list[Committer] = others) -> None:
            store.delete([info.key for info in store.list(removed)])
            other = begin(store)
            others.append(other)
            other.commit(snapshot(1, *state(1), values=b"other"))

        haunted = Haunted(store, at=at, ghost=ghost)
        ours._store = haunted
        with suppress(OutliveError):
            ours.commit(snapshot(1, *state(1), values=b"ours"))
        if not haunted.met:
            assert ours.acknowledged is not None
            return
        assert ours.acknowledged is None
        (other,) = others
        assert other.acknowledged is not None
        with suppress(OutliveError):
            ours.commit(snapshot(2, *state(2), values=b"ours"))
        assert ours.acknowledged is None
        assert begin(store).parent == other.acknowledged
    raise AssertionError("the save never ended")
