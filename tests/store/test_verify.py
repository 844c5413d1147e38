from dataclasses import replace

import pytest

from fakes.checkpoints import begin, hurt, snapshot
from fakes.stores import CountingStore, FailingStore
from outlive.errors import Cancelled, Unavailable
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.manifest import Manifest
from outlive.store.verify import verify

A, B, C, D = b"a" * 100, b"b" * 200, b"c" * 300, b"d" * 400


def saved(store: MemoryStore) -> Manifest:
    committer = begin(store)
    committer.commit(snapshot(1, A, B))
    return committer.commit(snapshot(2, A, A, C, D, values=b'{"x":' + b"1" * 500 + b"}")).manifest


def test_a_whole_checkpoint_has_no_problems() -> None:
    """Every object is read once, those of earlier checkpoints too, and every byte is counted."""
    store = MemoryStore()
    manifest = saved(store)
    counting = CountingStore(store)
    report = verify(counting, manifest)
    blobs = set(manifest.blobs())
    assert report.ok
    assert (report.objects, report.bytes) == (len(blobs), sum(blob.bytes for blob in blobs))
    chunk_reads = [key for action, key in counting.seen if action == "get"]
    assert len(set(chunk_reads)) == len(blobs)


def test_all_problems_are_found_at_once() -> None:
    """One bad object does not hide the next."""
    store = MemoryStore()
    manifest = saved(store)
    part = manifest.parts[0]
    damage = {part.chunks[0].blob: "altered", part.chunks[2].blob: "missing", part.chunks[3].blob: "short"}
    damage |= {part.values: "long", part.table: "altered"}
    wrong = {layout.chunk("gpt", blob.home, blake3=blob.blake3): by for blob, by in damage.items()}
    for key, by in wrong.items():
        hurt(store, key, by=by)
    report = verify(store, manifest)
    assert not report.ok
    assert [problem.key for problem in report.problems] == sorted(wrong)
    assert all(problem.key in problem.message for problem in report.problems)


def test_a_table_that_does_not_belong_to_the_image_is_a_problem() -> None:
    """Right bytes in the wrong place are found as well."""
    store = MemoryStore()
    manifest = saved(store)
    small = begin(store).commit(snapshot(3, A)).manifest
    mixed = replace(manifest, parts=(replace(manifest.parts[0], table=small.parts[0].table),))
    assert "of an image of" in verify(store, mixed).problems[0].message


def test_an_outage_is_no_verdict() -> None:
    """A checkpoint is never called damaged because the store did not answer."""
    store = MemoryStore()
    manifest = saved(store)
    with pytest.raises(Unavailable):
        verify(FailingStore(store, at=2, failure="refused"), manifest)


def test_verifying_can_be_watched_and_stopped() -> None:
    """Progress reaches the total; a cancelled verification raises."""
    store = MemoryStore()
    manifest = saved(store)
    seen: list[tuple[int, int]] = []
    report = verify(store, manifest, progress=lambda *told: seen.append(told))
    assert seen[-1] == (report.bytes, report.bytes)
    with pytest.raises(Cancelled):
        verify(store, manifest, cancelled=lambda: True)
