from dataclasses import replace

import pytest

from fakes.checkpoints import Passed, begin, hurt, image_of, keys, restored, snapshot
from fakes.stores import FailingStore, Wrapped
from outlive.errors import Cancelled, Damaged, Denied, Unavailable
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.chunks import digest
from outlive.store.fetch import fetch, restore_newest
from outlive.store.layout import CheckpointId

A, B, C = b"a" * 100, b"b" * 200, b"c" * 300
DAMAGE = ["missing", "short", "long", "altered"]


def buffer(size: int) -> memoryview:
    return memoryview(bytearray(size))


def chunk_key(tensor: bytes, home: CheckpointId) -> str:
    return layout.chunk("gpt", home, blake3=digest(image_of(tensor)))


@pytest.mark.parametrize("by", DAMAGE)
@pytest.mark.parametrize("what", ["chunk", "table", "values", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_told(by: str, what: str) -> None:
    """Whatever is missing, short, long or altered: the next newest one is taken, and the caller hears why."""
    store = MemoryStore()
    committer = begin(store)
    good = committer.commit(snapshot(1, A, values=b"1")).manifest
    bad = committer.commit(snapshot(2, B, C, values=b"2")).manifest
    part = bad.parts[0]
    blob = {"chunk": part.chunks[1].blob, "table": part.table, "values": part.values}.get(what)
    key = layout.chunk("gpt", blob.home, blake3=blob.blake3) if blob else layout.manifest("gpt", bad.id)
    hurt(store, key, by=by)
    passed = Passed()
    found = restore_newest(store, "gpt", buffer, on_damaged=passed)
    if (what, by) == ("manifest", "missing"):
        assert passed.ids == []
    else:
        assert passed.ids == [bad.id]
        assert key in str(passed.errors[0])
    assert found is not None
    assert (found.manifest, bytes(found.image), found.notes[0].values) == (good, image_of(A), b"1")


def test_damage_in_what_two_checkpoints_share_reaches_past_both() -> None:
    """A shared chunk that is gone takes all that name it; what is older still serves."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, A))
    committer.commit(snapshot(2, B))
    committer.commit(snapshot(3, B, values=b"3"))
    hurt(store, chunk_key(B, CheckpointId(1, 2)), by="altered")
    passed = Passed()
    found = restore_newest(store, "gpt", buffer, on_damaged=passed)
    assert passed.ids == [CheckpointId(1, 3), CheckpointId(1, 2)]
    assert found is not None
    assert found.manifest.id == CheckpointId(1, 1)


def test_a_store_that_can_not_be_asked_is_no_reason_to_fall_back() -> None:
    """An outage or a wrong key never costs steps: it is an error."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, A))
    committer.commit(snapshot(2, B))
    for at in range(6):
        failing = FailingStore(store, at=at, failure="refused")
        with pytest.raises(Unavailable):
            restore_newest(failing, "gpt", buffer, on_damaged=Passed())

    class Locked(Wrapped):
        def read_into(self, key: str, buffer: memoryview) -> None:
            raise Denied(key)

    with pytest.raises(Denied):
        restore_newest(Locked(store), "gpt", buffer, on_damaged=Passed())


def test_a_run_without_checkpoints_has_nothing_to_restore() -> None:
    """Only a run that never saved begins from zero."""
    assert restored(MemoryStore()) is None


def test_a_run_whose_checkpoints_are_all_damaged_does_not_silently_begin_again() -> None:
    """Starting from zero over damaged checkpoints is for a person to decide."""
    store = MemoryStore()
    begin(store).commit(snapshot(1, A))
    hurt(store, chunk_key(A, CheckpointId(1, 1)), by="missing")
    with pytest.raises(Damaged, match="no checkpoint of run gpt") as caught:
        restored(store)
    assert "outlive verify gpt" in caught.value.hint


def test_bytes_that_were_hurt_on_their_way_are_read_again() -> None:
    """One bad transfer is not taken for a damaged checkpoint."""

    class Noisy(Wrapped):
        noise = 1

        def read_into(self, key: str, buffer: memoryview) -> None:
            super().read_into(key, buffer)
            if self.noise:
                self.noise = 0
                buffer[0] ^= 1

    store = MemoryStore()
    done = begin(store).commit(snapshot(1, A, B))
    assert restored(Noisy(store)) == (done.manifest, image_of(A, B))


def test_an_image_of_another_size_is_refused() -> None:
    """Nothing is written into memory that does not fit exactly."""
    store = MemoryStore()
    manifest = begin(store).commit(snapshot(1, A)).manifest
    with pytest.raises(ValueError, match="does not go into"):
        fetch(store, manifest, buffer(64))


def test_a_table_of_another_image_is_damaged() -> None:
    """A table and chunks that are each right but do not belong together are no checkpoint."""
    store = MemoryStore()
    committer = begin(store)
    one = committer.commit(snapshot(1, A)).manifest
    two = committer.commit(snapshot(2, A, B)).manifest
    mixed = replace(two, parts=(replace(two.parts[0], table=one.parts[0].table),))
    with pytest.raises(Damaged, match="of an image of"):
        fetch(store, mixed, buffer(two.total_bytes))


def test_fetching_can_be_watched_and_stopped() -> None:
    """Progress reaches the total; a cancelled fetch raises."""
    store = MemoryStore()
    manifest = begin(store).commit(snapshot(1, A, B)).manifest
    seen: list[tuple[int, int]] = []
    fetch(store, manifest, buffer(manifest.total_bytes), progress=lambda *told: seen.append(told))
    assert seen[-1][0] == seen[-1][1] == sum(blob.bytes for blob in manifest.blobs())
    with pytest.raises(Cancelled):
        fetch(store, manifest, buffer(manifest.total_bytes), cancelled=lambda: True)


def test_nothing_is_written_by_restoring() -> None:
    """A reader needs no permission to write."""
    store = MemoryStore()
    begin(store).commit(snapshot(1, A))
    before = keys(store)

    class ReadOnly(Wrapped):
        def put(self, key: str, body: bytes | memoryview, *, create_only: bool = False) -> None:
            raise Denied(key)

    assert restored(ReadOnly(store)) is not None
    assert keys(store) == before
