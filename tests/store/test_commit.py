import threading
from dataclasses import replace

import pytest

from fakes.checkpoints import IDENTITY, begin, image, image_of, keys, restored, snapshot
from fakes.stores import BlockingStore, CountingStore, FailingStore, UnconditionalStore
from outlive.errors import Cancelled, StateError, StoreError, Superseded, Unavailable
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import LOOK_SECONDS, Committer
from outlive.store.layout import CheckpointId
from outlive.store.lives import claim
from outlive.store.newest import checkpoints, read_manifest

STORES = [MemoryStore, UnconditionalStore]
A, B, C = b"a" * 100, b"b" * 200, b"c" * 300


@pytest.mark.parametrize("kind", STORES)
def test_a_committed_snapshot_is_restored_bit_for_bit(kind: type[MemoryStore]) -> None:
    """What went in comes out, with everything the manifest says about it."""
    store = kind()
    committer = begin(store)
    done = committer.commit(snapshot(7, A, B, values=b'{"x":1}', metrics={"loss": 2.5}))
    assert restored(store) == (done.manifest, image_of(A, B))
    assert (done.manifest.id, done.manifest.metrics) == (CheckpointId(1, 7), {"loss": 2.5})
    assert done.sent_bytes == sum(blob.bytes for blob in done.manifest.blobs())
    assert committer.acknowledged == done.manifest


def test_the_manifest_is_the_last_thing_that_is_put() -> None:
    """No manifest names a chunk whose put was not answered; the lives are listed last."""
    store = CountingStore(MemoryStore())
    committer = begin(store)
    store.seen.clear()
    committer.commit(snapshot(7, A, B, C))
    puts = [index for index, (action, _) in enumerate(store.seen) if action == "put"]
    assert store.seen[puts[-1]] == ("put", "gpt/checkpoints/000001-000000000007.json")
    assert ("list", "gpt/lives/") in store.seen[puts[-1] :]
    assert all("/chunks/" in store.seen[index][1] for index in puts[:-1])


def test_unchanged_chunks_are_not_sent_again() -> None:
    """A frozen base is uploaded once, in this life and in those that resume from its checkpoints."""
    store = MemoryStore()
    first = begin(store)
    first.commit(snapshot(1, A, B))
    again = first.commit(snapshot(2, A, C, values=b'{"step":2}'))
    assert again.sent_bytes < len(image_of(C)) + len(image(A, C).table) + 20
    second = begin(store)
    resumed = second.commit(snapshot(3, A, C, values=b'{"step":3}'))
    assert resumed.sent_bytes == len(b'{"step":3}')
    homes = [chunk.home for chunk in resumed.manifest.parts[0].chunks]
    assert homes == [CheckpointId(1, 1), CheckpointId(1, 2)]
    assert restored(store) == (resumed.manifest, image_of(A, C))


def test_equal_tensors_of_one_snapshot_are_sent_once() -> None:
    """Copies inside a state (the best weights so far, say) cost nothing."""
    store = MemoryStore()
    done = begin(store).commit(snapshot(1, A, A, A))
    assert len(keys(store, "gpt/chunks/")) == 3
    assert restored(store) == (done.manifest, image_of(A, A, A))


def test_what_an_older_checkpoint_had_is_sent_again() -> None:
    """Only the newest checkpoint is relied on: an older one may be pruned while the next is under way."""
    committer = begin(MemoryStore())
    committer.commit(snapshot(1, A))
    committer.commit(snapshot(2, B))
    assert committer.commit(snapshot(3, A)).manifest.parts[0].chunks[0].home == CheckpointId(1, 3)


def test_a_newer_life_is_noticed_before_saved_is_said() -> None:
    """A superseded life hears so instead of "saved", deletes nothing, and stays superseded."""
    store = MemoryStore()
    old = begin(store)
    old.commit(snapshot(1, A))
    begin(store)
    before = keys(store)
    with pytest.raises(Superseded, match="life 2"):
        old.commit(snapshot(2, B))
    assert set(before) < set(keys(store))
    requests = len(keys(store))
    with pytest.raises(Superseded):
        old.commit(snapshot(3, C))
    assert len(keys(store)) == requests
    assert old.acknowledged is not None
    assert old.acknowledged.step == 1


def test_a_life_that_comes_during_the_commit_prevents_the_acknowledgement() -> None:
    """Between the manifest and "saved" there is a last look."""
    store = MemoryStore()
    begin(store).commit(snapshot(1, A))
    blocking = BlockingStore(store, stops=lambda action, key: action == "put" and "/checkpoints/" in key)
    old = begin(blocking)
    caught: list[BaseException] = []

    def save() -> None:
        try:
            old.commit(snapshot(2, B))
        except Superseded as error:
            caught.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    assert blocking.arrived.wait(10)
    claim(store, "gpt", identity=IDENTITY)
    blocking.go.set()
    thread.join(10)
    assert len(caught) == 1


@pytest.mark.parametrize("kind", STORES)
def test_saving_a_step_again_with_the_same_content_is_a_success(kind: type[MemoryStore]) -> None:
    """An interval and a notice may fall on the same step, and a repeated commit may find its own manifest."""
    store = kind()
    committer = begin(store)
    first = committer.commit(snapshot(1, A))
    second = committer.commit(snapshot(1, A, reason="notice"))
    assert second.manifest == first.manifest
    fresh = Committer(store, committer.life, parent=None)
    assert fresh.commit(snapshot(1, A)).manifest == first.manifest


@pytest.mark.parametrize("kind", STORES)
def test_saving_a_step_again_with_other_content_is_refused(kind: type[MemoryStore]) -> None:
    """A checkpoint is never replaced."""
    store = kind()
    committer = begin(store)
    first = committer.commit(snapshot(1, A))
    with pytest.raises(StoreError, match="other content"):
        committer.commit(snapshot(1, B))
    assert restored(store) == (first.manifest, image_of(A))
    committer.commit(snapshot(2, B))


@pytest.mark.parametrize("kind", STORES)
def test_a_manifest_of_another_owner_means_superseded(kind: type[MemoryStore]) -> None:
    """Two processes that believe they are the same life: the second one to write stops."""
    store = kind()
    committer = begin(store)
    committer.commit(snapshot(1, A))
    twin = Committer(store, replace(committer.life, nonce="f" * 32), parent=None)
    with pytest.raises(Superseded, match="was written by another owner"):
        twin.commit(snapshot(1, A))


def test_rubbish_at_the_manifests_key_is_an_error_and_stays() -> None:
    """Whatever lies there was not ours to replace."""
    store = MemoryStore()
    committer = begin(store)
    store.put(layout.manifest("gpt", CheckpointId(1, 1)), b"rubbish")
    with pytest.raises(StoreError, match="no manifest"):
        committer.commit(snapshot(1, A))
    committer.commit(snapshot(2, A))


def test_steps_only_grow() -> None:
    """A lower step would never be found again, so it is refused instead of being lost."""
    committer = begin(MemoryStore())
    committer.commit(snapshot(5, A))
    with pytest.raises(StoreError, match="step 5 already"):
        committer.commit(snapshot(4, B))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("failure", ["refused", "answer lost"])
def test_a_commit_that_fails_anywhere_leaves_the_next_one_whole(
    kind: type[MemoryStore], failure: str
) -> None:
    """Whichever request fails or loses its answer: the same save again succeeds, and so does the next."""
    for again in (1, 2):
        for at in range(100):
            store = kind()
            committer = begin(store)
            committer.commit(snapshot(1, A, B))
            failing = FailingStore(store, at=at, failure=failure)  # type: ignore[arg-type]
            committer._store = failing
            try:
                committer.commit(snapshot(2, A, C))
            except Unavailable:
                assert failing.met
            committer._store = store
            done = committer.commit(snapshot(1 + again, A, C))
            assert restored(store) == (done.manifest, image_of(A, C))
            if not failing.met:
                break
        else:
            raise AssertionError("the commit never ended")


def test_a_failed_save_is_not_sent_all_over() -> None:
    """What had arrived before the failure counts as known: a large first save gets through in the end."""
    store = MemoryStore()
    committer = begin(store)
    committer._store = FailingStore(store, at=4, failure="refused")
    with pytest.raises(Unavailable):
        committer.commit(snapshot(1, A, B, C))
    arrived = len(keys(store, "gpt/chunks/"))
    committer._store = store
    done = committer.commit(snapshot(2, A, B, C, values=b'{"step":2}'))
    homes = [blob.home.step for blob in done.manifest.blobs()]
    assert homes.count(1) >= arrived - 1
    assert restored(store) == (done.manifest, image_of(A, B, C))


def test_after_a_failed_save_a_restart_further_back_names_no_later_home() -> None:
    """A trainer may crash and repeat steps: no manifest points to a checkpoint later than itself."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, A))
    committer._store = FailingStore(store, at=3, failure="refused")
    with pytest.raises(Unavailable):
        committer.commit(snapshot(9, B, C))
    committer._store = store
    done = committer.commit(snapshot(5, B, C))
    assert all(blob.home <= done.manifest.id for blob in done.manifest.blobs())
    assert read_manifest(store, "gpt", done.manifest.id) == done.manifest


def test_cancelling_leaves_chunks_and_no_checkpoint() -> None:
    """A cancelled commit stops between two chunks and is no checkpoint; the next one is."""
    store = MemoryStore()
    committer = begin(store)
    with pytest.raises(Cancelled):
        committer.commit(snapshot(1, A, B, C), cancelled=lambda: bool(keys(store, "gpt/chunks/")))
    assert checkpoints(store, "gpt") == []
    assert 0 < len(keys(store, "gpt/chunks/")) < 5
    assert committer.commit(snapshot(2, A, B, C)).manifest.id == CheckpointId(1, 2)


def test_progress_ends_with_everything() -> None:
    """The listener sees the bytes grow to the total, and how many really had to be sent."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, A, B))
    seen: list[tuple[int, int, int]] = []
    done = committer.commit(snapshot(2, A, C), progress=lambda *told: seen.append(told))
    assert seen == sorted(seen)
    total = sum(blob.bytes for blob in done.manifest.blobs())
    assert seen[-1] == (total, total, done.sent_bytes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": b"{}"},
        {"image": memoryview(b"")},
        {"metrics": {"x" * 1000: 1.0}},
        {"metrics": {"loss": object()}},
        {"environment": {"a": "\ud800"}},
        {"values": bytes(64 * 1024 * 1024 + 1)},
        {"step": -1},
    ],
)
def test_a_snapshot_that_could_not_be_read_back_is_refused_before_it_is_sent(
    wrong: dict[str, object],
) -> None:
    """No save ends as a checkpoint that nobody can read."""
    store = MemoryStore()
    committer = begin(store)
    before = keys(store)
    of_rank = {name: wrong[name] for name in wrong if name in {"table", "values", "image"}}
    of_all = {name: wrong[name] for name in wrong if name not in of_rank}
    only = replace(image(A), **of_rank)  # type: ignore[arg-type]
    with pytest.raises(StateError):
        committer.commit(replace(snapshot(1, A), images=(only,), **of_all))  # type: ignore[arg-type]
    assert keys(store) == before


def test_a_state_without_tensors_is_a_checkpoint() -> None:
    """An empty image has no chunks and restores."""
    store = MemoryStore()
    done = begin(store).commit(snapshot(1))
    assert restored(store) == (done.manifest, b"")


def test_the_image_can_be_closed_after_a_failure() -> None:
    """An error does not hold on to the memory it was raised about."""
    committer = begin(MemoryStore())
    committer._store = FailingStore(MemoryStore(), at=1, failure="refused")
    memory = bytearray(image_of(A, B))
    only = replace(image(A, B), image=memoryview(memory))
    saved = replace(snapshot(1, A, B), images=(only,))
    with pytest.raises(Unavailable) as caught:
        committer.commit(saved)
    only.image.release()
    memory.append(0)  # BufferError if anything still looked into it
    assert caught.value is not None


def test_a_claim_removed_from_outside_costs_nothing() -> None:
    """The save is acknowledged, the claim stands again, and a person hears of it."""
    store = MemoryStore()
    committer = begin(store)
    store.delete([layout.life("gpt", 1)])
    done = committer.commit(snapshot(1, A))
    assert committer.acknowledged == done.manifest
    assert layout.life("gpt", 1) in keys(store)
    assert ["claim of life 1 was removed" in line for line in done.put_right] == [True]
    assert committer.commit(snapshot(2, B)).put_right == ()


def test_a_run_removed_under_a_save_is_not_acknowledged_before_it_is_whole() -> None:
    """Whoever removes the claim may remove more: what the manifest names is looked for first."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, A, B))
    store.delete(keys(store))
    with pytest.raises(StoreError, match="were removed"):
        committer.commit(snapshot(2, A, C))
    done = committer.commit(snapshot(3, A, C, values=b"3"))
    assert restored(store) == (done.manifest, image_of(A, C))


def test_chunks_removed_from_outside_are_sent_again() -> None:
    """A lifecycle rule that eats the chunks of a frozen base is noticed within minutes, and made good."""
    store, now = MemoryStore(), [0.0]
    life = begin(store).life
    committer = Committer(store, life, parent=None, clock=lambda: now[0])
    first = committer.commit(snapshot(1, A, B)).manifest
    store.delete([layout.chunk("gpt", chunk.home, blake3=chunk.blake3) for chunk in first.parts[0].chunks])
    now[0] = LOOK_SECONDS
    hurried = committer.commit(snapshot(2, A, B, reason="notice"))
    assert hurried.sent_bytes == 0
    done = committer.commit(snapshot(3, A, B))
    assert done.sent_bytes == len(image_of(A, B))
    assert ["2 chunks" in line for line in done.put_right] == [True]
    assert restored(store) == (done.manifest, image_of(A, B))
    seen = CountingStore(store)
    committer._store = seen
    committer.commit(snapshot(4, A, B))
    assert ("list", "gpt/chunks/") not in seen.seen
