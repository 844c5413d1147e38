import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from fakes.checkpoints import IDENTITY, Clock, begin, hurt, image_of, keys, restored, snapshot
from fakes.stores import BlockingStore, FailingStore, Wrapped
from outlive.errors import Denied, StoreError, Superseded, Unavailable
from outlive.objects.interface import ObjectInfo
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.events import EventLog
from outlive.store.layout import CheckpointId
from outlive.store.lives import claim
from outlive.store.newest import checkpoints
from outlive.store.prune import GRACE, plan_prune, prune
from outlive.store.retention import Keep
from outlive.store.survey import lacks, survey

DAY = timedelta(days=1, seconds=1)
LAST = Keep(last=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


def save(committer: Committer, *steps: int) -> None:
    for step in steps:
        committer.commit(snapshot(step, b"frozen", b"step %d" % step, values=b"%d" % step))


def first_key(store: MemoryStore, prefix: str) -> str:
    return keys(store, prefix)[0]


def steps(store: MemoryStore) -> list[int]:
    return sorted(checkpoint.step for checkpoint in survey(store, "gpt").written)


def assert_clean(store: MemoryStore) -> None:
    """Nothing refers to what does not exist, and nothing is stored that no manifest names."""
    found = survey(store, "gpt")
    named = {
        layout.chunk("gpt", blob.home, blake3=blob.blake3)
        for manifest in found.manifests.values()
        for blob in manifest.blobs()
    }
    assert not any([*lacks(manifest, found.chunks)] for manifest in found.manifests.values())
    assert set(keys(store, "gpt/chunks/")) == named


def test_manifests_go_first_and_their_chunks_in_a_later_pass(store: MemoryStore, clock: Clock) -> None:
    """One pass never removes a manifest together with what only it names."""
    owner = begin(store)
    save(owner, 1, 2, 3)
    clock.advance(DAY)
    first = prune(store, "gpt", LAST, owner=owner)
    assert (steps(store), first.chunks) == ([3], ())
    assert first.later_bytes > 0
    second = prune(store, "gpt", LAST, owner=owner)
    assert (second.checkpoints, len(second.chunks), second.chunk_bytes) == ((), 4, first.later_bytes)
    assert_clean(store)
    assert restored(store) is not None


def test_young_chunks_stay_for_the_grace_period(store: MemoryStore, clock: Clock) -> None:
    """Age is the store's, by its own clock; what is young may belong to somebody's save."""
    owner = begin(store)
    save(owner, 1, 2)
    prune(store, "gpt", LAST, owner=owner)
    clock.advance(GRACE)
    plan = prune(store, "gpt", LAST, owner=owner)
    assert (plan.chunks, plan.later_bytes > 0) == ((), True)
    clock.advance(timedelta(seconds=1))
    prune(store, "gpt", LAST, owner=owner)
    assert_clean(store)


def test_in_a_full_store_garbage_goes_at_once_and_nothing_else(store: MemoryStore) -> None:
    """Age protects readers only: chunks that a manifest names stay, as do those of a save under way."""
    owner = begin(store)
    save(owner, 1, 2, 3)
    store.put(layout.chunk("gpt", CheckpointId(1, 4), blake3="0" * 64), b"of a save under way")
    assert prune(store, "gpt", LAST, owner=owner, full=True).chunks == ()
    assert prune(store, "gpt", LAST, owner=owner, full=True).chunks != ()
    assert prune(store, "gpt", LAST, owner=owner, full=True).chunks == ()
    assert keys(store, "gpt/chunks/000001-000000000004/")
    store.delete(keys(store, "gpt/chunks/000001-000000000004/"))
    assert_clean(store)
    assert restored(store) is not None


def test_a_plan_touches_nothing_and_is_what_happens(store: MemoryStore, clock: Clock) -> None:
    """The dry run says exactly what the real one does."""
    owner = begin(store)
    save(owner, 1, 2, 3)
    clock.advance(DAY)
    for _ in range(2):
        before = keys(store)
        plan = plan_prune(store, "gpt", LAST, owner=owner)
        assert keys(store) == before
        assert prune(store, "gpt", LAST, owner=owner) == plan
        gone = {layout.manifest("gpt", checkpoint) for checkpoint in plan.checkpoints} | {*plan.chunks}
        assert set(before) - set(keys(store)) == gone


def test_garbage_of_saves_that_never_became_checkpoints_goes(store: MemoryStore, clock: Clock) -> None:
    """What a killed save left is removed once it is old, in this life or by a later one."""
    owner = begin(store)
    owner._store = FailingStore(store, at=4, failure="refused")
    with pytest.raises(Unavailable):
        save(owner, 1)
    owner = begin(store)
    save(owner, 5)
    clock.advance(DAY)
    prune(store, "gpt", LAST, owner=owner)
    assert_clean(store)


def test_the_parent_and_the_newest_whole_one_are_never_removed(store: MemoryStore, clock: Clock) -> None:
    """The parent stays for the whole life; a newest one that lost a chunk does not count as the newest."""
    save(begin(store), 1, 2)
    owner = begin(store)
    save(owner, 3, 4, 5)
    hurt(store, first_key(store, "gpt/chunks/000002-000000000005/"), by="missing")
    clock.advance(DAY)
    plan = prune(store, "gpt", LAST, owner=owner)
    assert steps(store) == [2, 4, 5]
    assert "000002-000000000005 stays, but lacks chunks" in plan.notes


def test_only_a_life_that_was_acknowledged_prunes(store: MemoryStore) -> None:
    """Nothing is removed by a life that may turn out not to be the newest."""
    save(begin(store), 1, 2)
    owner = begin(store)
    with pytest.raises(StoreError, match="no checkpoint of its own"):
        prune(store, "gpt", LAST, owner=owner)


def test_a_superseded_life_removes_nothing(store: MemoryStore, clock: Clock) -> None:
    """The lives are listed again before anything is deleted."""
    owner = begin(store)
    save(owner, 1, 2, 3)
    clock.advance(DAY)
    claim(store, "gpt", identity=IDENTITY)
    with pytest.raises(Superseded):
        prune(store, "gpt", LAST, owner=owner)
    assert steps(store) == [1, 2, 3]


def test_chunks_that_the_next_checkpoint_may_name_stay(store: MemoryStore, clock: Clock) -> None:
    """What a failed save has sent is still relied on by the next save, so a prune between them leaves it."""
    owner = begin(store)
    save(owner, 1)
    owner._store = FailingStore(store, at=3, failure="refused")
    with pytest.raises(Unavailable):
        save(owner, 2)
    owner._store = store
    clock.advance(DAY)
    prune(store, "gpt", LAST, owner=owner)
    done = owner.commit(snapshot(3, b"frozen", b"step 2", values=b"2"))
    assert restored(store) == (done.manifest, image_of(b"frozen", b"step 2"))


def test_a_commit_during_a_prune_keeps_its_chunks(store: MemoryStore, clock: Clock) -> None:
    """A checkpoint that appears between look and deletion is in no marking, and whole all the same."""
    owner = begin(store)
    save(owner, 1, 2)
    clock.advance(DAY)
    prune(store, "gpt", LAST, owner=owner)

    class Meanwhile(Wrapped):
        """Commits a checkpoint right after the manifests were listed, and another after the chunks."""

        def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            found = [*super().list(prefix, after=after)]
            if prefix in ("gpt/checkpoints/", "gpt/chunks/"):
                save(owner, (owner.newest.step if owner.newest else 0) + 1)
            return iter(found)

    prune(Meanwhile(store), "gpt", LAST, owner=owner, grace=timedelta(seconds=-1))
    assert owner.newest is not None
    found = restored(store)
    assert found is not None
    assert found[0] == owner.newest
    look = survey(store, "gpt")
    assert look.whole == set(look.manifests)


def test_a_late_deletion_can_not_hit_what_a_later_life_sends_again(store: MemoryStore, clock: Clock) -> None:
    """A remover sleeps before its deletion; the next life repeats the same bytes; they stay."""
    owner = begin(store)
    save(owner, 1, 2)
    clock.advance(DAY)
    prune(store, "gpt", LAST, owner=owner)
    asleep = BlockingStore(store, stops=lambda action, key: action == "delete")
    sleeper = threading.Thread(target=lambda: prune(asleep, "gpt", LAST, owner=owner))
    sleeper.start()
    assert asleep.arrived.wait(10)
    later = begin(store)
    done = later.commit(snapshot(3, b"frozen", b"step 1", values=b"1"))
    asleep.go.set()
    sleeper.join(10)
    assert restored(store) == (done.manifest, image_of(b"frozen", b"step 1"))


def test_an_unreadable_manifest_stops_the_removal_of_chunks(store: MemoryStore, clock: Clock) -> None:
    """What a manifest names that nobody can read, nobody can know."""
    owner = begin(store)
    save(owner, 1, 2, 3)
    hurt(store, layout.manifest("gpt", CheckpointId(1, 1)), by="altered")
    clock.advance(DAY)
    before = keys(store, "gpt/chunks/")
    for _ in range(2):
        plan = prune(store, "gpt", LAST, owner=owner)
    assert keys(store, "gpt/chunks/") == before
    assert steps(store) == [1, 3]
    assert any("no chunk goes: 1 manifests can't be read" in note for note in plan.notes)


def test_a_listing_that_leaves_something_out_costs_no_checkpoint(store: MemoryStore, clock: Clock) -> None:
    """Before a checkpoint is removed for lacking a chunk, the chunk itself is asked for."""
    save(begin(store), 1)
    owner = begin(store)
    save(owner, 2, 3)
    clock.advance(DAY)

    hidden = "gpt/chunks/000002-000000000002/"

    class Forgetful(Wrapped):
        def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            return (info for info in super().list(prefix, after=after) if not info.key.startswith(hidden))

    plan = prune(Forgetful(store), "gpt", Keep(last=5), owner=owner)
    assert (plan.checkpoints, plan.chunks) == ((), ())
    assert plan.notes == ("000002-000000000002 stays, but lacks chunks",)


def test_what_a_superseded_life_left_broken_goes(store: MemoryStore, clock: Clock) -> None:
    """An old checkpoint that really lacks a chunk is garbage."""
    save(begin(store), 1)
    save(begin(store), 2)
    owner = begin(store)
    save(owner, 3)
    hurt(store, first_key(store, "gpt/chunks/000001-"), by="short")
    for info in store.list("gpt/chunks/000002-"):
        hurt(store, info.key, by="missing")
    clock.advance(DAY)
    prune(store, "gpt", Keep(last=9), owner=owner)
    assert CheckpointId(1, 1) not in survey(store, "gpt").written


def test_what_a_rewind_abandoned_stays_for_a_while(store: MemoryStore, clock: Clock) -> None:
    """Who went back may come back again within the grace period; then the abandoned ones go."""
    save(begin(store), 1, 2, 3)
    clock.advance(DAY)
    owner = begin(store, back_to=CheckpointId(1, 1))
    owner.commit(snapshot(2, b"other"))
    prune(store, "gpt", LAST, owner=owner)
    assert steps(store) == [1, 2, 2, 3]
    clock.advance(DAY)
    prune(store, "gpt", LAST, owner=owner)
    assert checkpoints(store, "gpt") == sorted(survey(store, "gpt").written, reverse=True)
    assert steps(store) == [1, 2]


def test_with_nothing_whole_nothing_goes(store: MemoryStore, clock: Clock) -> None:
    """If every checkpoint lacks something, a person has to look."""
    owner = begin(store)
    save(owner, 1, 2)
    hurt(store, first_key(store, "gpt/chunks/000001-000000000001/"), by="missing")
    for info in store.list("gpt/chunks/000001-000000000002/"):
        hurt(store, info.key, by="missing")
    clock.advance(DAY)
    assert prune(store, "gpt", LAST, owner=owner).notes == ("nothing goes: no checkpoint is whole",)


def test_by_hand_the_newest_lifes_chunks_stay(store: MemoryStore, clock: Clock) -> None:
    """A laptop may prune beside a life at work: it touches only what no life at work can rely on."""
    save(begin(store), 1, 2)
    owner = begin(store)
    save(owner, 3, 4)
    clock.advance(DAY)
    for _ in range(2):
        plan = prune(store, "gpt", LAST)
    assert steps(store) == [2, 4]
    assert plan.later_bytes > 0
    assert any("/chunks/000002-000000000003/" in key for key in keys(store))
    save(owner, 5)
    assert restored(store) is not None
    save(begin(store), 6)
    clock.advance(DAY)
    for _ in range(2):
        prune(store, "gpt", LAST)
    assert not any("/chunks/000002-000000000003/" in key for key in keys(store))


def test_by_hand_what_a_life_left_goes_once_it_is_over(store: MemoryStore, clock: Clock) -> None:
    """A finished run does not keep for ever what it let go on its last day, be it of its only life."""

    def left() -> set[str]:
        """Homes of chunks that no manifest names."""
        prune(store, "gpt", LAST)
        found = survey(store, "gpt")
        named = {blob.blake3 for manifest in found.manifests.values() for blob in manifest.blobs()}
        return {key.split("/")[2] for key in found.chunks if key.rpartition("/")[2] not in named}

    owner = begin(store)
    log = EventLog(store, owner.life)
    save(owner, 1, 2)
    log.write("training")
    clock.advance(DAY)
    assert left()
    assert left(), "it may be at work"
    log.write("ended", outcome="save-failed")
    assert left(), "it has only just ended"
    clock.advance(DAY)
    log.write("training")  # another agent went on with it
    clock.advance(DAY)
    assert left(), "it may be at work again"
    log.write("ended", outcome="finished")
    store.put(layout.chunk("gpt", CheckpointId(1, 3), blake3="0" * 64), b"of a save that failed")
    clock.advance(DAY)
    assert left() == {str(CheckpointId(1, 3))}, "another agent may still make it"
    found = restored(store)
    assert found is not None
    assert found[0].step == 2


def test_by_hand_nothing_goes_while_a_life_is_choosing(store: MemoryStore, clock: Clock) -> None:
    """A life that was claimed and has not said what it resumes from may be reading any checkpoint."""
    save(begin(store), 1, 2)
    clock.advance(DAY)
    claim(store, "gpt", identity=IDENTITY)
    plan = prune(store, "gpt", LAST)
    assert plan.checkpoints == ()
    assert "life 2 was claimed" in plan.notes[0]
    clock.advance(DAY)  # it died instead
    assert prune(store, "gpt", LAST).checkpoints == (CheckpointId(1, 1),)


def test_by_hand_no_chunk_goes_when_the_parent_can_not_be_read(store: MemoryStore, clock: Clock) -> None:
    """The newest life may still name what only its vanished parent named."""
    save(begin(store), 1, 2)
    begin(store)
    store.delete([layout.manifest("gpt", CheckpointId(1, 2))])
    clock.advance(DAY)
    plan = prune(store, "gpt", LAST)
    assert plan.chunks == ()
    assert any("resumed from 000001-000000000002" in note for note in plan.notes)


def test_by_hand_a_life_that_begins_meanwhile_stops_it(store: MemoryStore, clock: Clock) -> None:
    """The list of lives is read again before the first deletion, by hand too."""
    save(begin(store), 1, 2)
    clock.advance(DAY)

    class Meanwhile(Wrapped):
        def now(self) -> datetime:
            claim(store, "gpt", identity=IDENTITY)
            return super().now()

    with pytest.raises(StoreError, match="a new life"):
        prune(Meanwhile(store), "gpt", LAST)
    assert steps(store) == [1, 2]


def test_by_hand_an_unreadable_adoption_stops_everything(store: MemoryStore, clock: Clock) -> None:
    """Without knowing the parent, nothing may go."""
    save(begin(store), 1, 2)
    store.put(layout.adopted("gpt", 1), b"{}")
    clock.advance(DAY)
    assert prune(store, "gpt", LAST).notes[0].startswith("nothing goes: what life 1 resumed from")
    assert plan_prune(store, "other", LAST).notes == ("nothing goes: the run has no life",)


def test_a_deletion_that_is_refused_is_an_error(store: MemoryStore, clock: Clock) -> None:
    """Who may not delete hears so, and no chunk is removed after a manifest that was not."""
    owner = begin(store)
    save(owner, 1, 2)
    clock.advance(DAY)

    class NoDelete(Wrapped):
        def delete(self, keys: object) -> None:
            raise Denied("no")

    with pytest.raises(Denied):
        prune(NoDelete(store), "gpt", LAST, owner=owner)
