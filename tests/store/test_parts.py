"""One checkpoint of several ranks: one commit, one image, and no part that leans on what is not there."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.checkpoints import Passed, begin, hurt, image, image_of, keys, snapshot, table_of
from outlive.errors import ProtocolError, StateError
from outlive.objects.memory import MemoryStore
from outlive.staging.arena import Notes
from outlive.staging.parts import PartNotes, decode_parts, encode_parts, parts_of
from outlive.store import layout
from outlive.store.commit import Image, Snapshot
from outlive.store.fetch import offsets, restore_newest
from outlive.store.table import TensorEntry, TensorTable
from outlive.store.verify import verify

SAME = b"s" * 100
OWN = (b"a" * 200, b"b" * 5000, b"c" * 64, b"d" * 4096)


def _of_ranks(step: int, *images: Image) -> Snapshot:
    return replace(snapshot(step, b""), images=images)


def _four(step: int = 1) -> Snapshot:
    return _of_ranks(step, *(image(SAME, own, values=b"%d" % rank) for rank, own in enumerate(OWN)))


def _leaning(owner: int) -> Image:
    """A rank that says that another one has its only tensor."""
    entry = TensorEntry(
        path="model/0", dtype="uint8", shape=(100,), offset=0, bytes=0, device="cpu", owner=owner
    )
    return Image(
        table=TensorTable(bytes=0, tensors=(entry,)).encode(), values=b"{}", image=memoryview(bytearray())
    )


def test_parts_come_back_each_at_a_page_and_bit_for_bit() -> None:
    """A joint image holds every rank's at a multiple of 4096, and each with its own table and values."""
    store = MemoryStore()
    manifest = begin(store).commit(_four()).manifest
    assert [(part.rank, part.world) for part in manifest.parts] == [(rank, 4) for rank in range(4)]
    found = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=Passed())
    assert found is not None
    assert found.image.nbytes == offsets(manifest)[-1]
    for rank, (own, notes) in enumerate(zip(OWN, found.notes, strict=True)):
        whole = image_of(SAME, own)
        assert notes.offset % 4096 == 0
        assert found.image[notes.offset : notes.offset + len(whole)] == whole
        assert (notes.table, notes.values) == (table_of(100, len(own)).encode(), b"%d" % rank)


def test_what_ranks_have_alike_is_sent_once() -> None:
    """Four ranks with an equal chunk put one object, and say how many bytes were really sent."""
    store = MemoryStore()
    committed = begin(store).commit(_four())
    (same,) = {part.chunks[0].blake3 for part in committed.manifest.parts}
    chunks = keys(store, layout.chunks("gpt"))
    assert len([key for key in chunks if key.endswith(same)]) == 1
    assert committed.sent_bytes == sum(len(store.get(key, at_most=2**30)) for key in chunks)


@pytest.mark.parametrize("owner", [1, 2, 7])
def test_an_owner_that_lacks_it_is_refused_before_a_byte_is_sent(owner: int) -> None:
    """Whether that rank has no such tensor, is the asker itself, or does not exist: nothing is sent."""
    store = MemoryStore()
    committer = begin(store)
    with pytest.raises(StateError, match="model/0"):
        committer.commit(_of_ranks(1, image(SAME), _leaning(owner), image(b"", b"z" * 9)))
    assert not keys(store, layout.chunks("gpt"))


def test_a_checkpoint_with_a_damaged_part_is_passed_over() -> None:
    """One rank's chunk is enough: the one before is taken, of all ranks."""
    store = MemoryStore()
    committer = begin(store)
    first = committer.commit(_four(1)).manifest
    second = committer.commit(_of_ranks(2, *(image(SAME, bytes([r]) * 300) for r in range(4)))).manifest
    chunk = second.parts[3].chunks[1]
    hurt(store, layout.chunk("gpt", chunk.home, blake3=chunk.blake3), by="altered")
    passed = Passed()
    found = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=passed)
    assert found is not None
    assert (found.manifest.id, passed.ids) == (first.id, [second.id])


def test_a_checkpoint_whose_owner_is_missing_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote it: verify says so, and a restore passes it over."""
    store = MemoryStore()
    committer = begin(store)
    first = committer.commit(_four(1)).manifest
    monkeypatch.setattr("outlive.store.commit._check_together", lambda tables: None)
    second = committer.commit(_of_ranks(2, image(b"q" * 70, SAME), _leaning(0))).manifest
    assert not verify(store, second).ok
    passed = Passed()
    found = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=passed)
    assert found is not None
    assert (found.manifest.id, passed.ids) == (first.id, [second.id])


def _part(rank: int, offset: int, size: int = 64) -> PartNotes:
    return PartNotes(rank=rank, offset=offset, bytes=size, table=b"t%d" % rank, values=b"values")


def test_the_notes_of_ranks_come_back() -> None:
    """Index and rest are read as they were written; of one rank there is no index."""
    parts = (_part(0, 0, 4096), _part(1, 4096, 0), _part(2, 4096))
    assert parts_of(encode_parts(parts), world=3, image_bytes=4160) == parts
    only = parts_of(Notes(b"table", b"values"), world=1, image_bytes=64)
    assert only == (PartNotes(rank=0, offset=0, bytes=64, table=b"table", values=b"values"),)


@pytest.mark.parametrize(
    "parts",
    [
        [_part(0, 0, 4097), _part(1, 4096)],
        [_part(0, 0), _part(1, 64)],
        [_part(0, 0), _part(1, 8192)],
        [_part(1, 0), _part(0, 4096)],
        [_part(0, 0), _part(0, 4096)],
    ],
    ids=["overlap", "unaligned", "outside", "order", "twice"],
)
def test_parts_that_do_not_fit_are_refused(parts: list[PartNotes]) -> None:
    """An index is another process's word: nothing is read by it outside the image or twice."""
    with pytest.raises(ProtocolError):
        decode_parts(encode_parts(parts), 8192)


@pytest.mark.parametrize(
    "change",
    [
        lambda n: Notes(b"[[0,0,64,2,6],[1,4096,64,2,7]]", n.values),
        lambda n: Notes(n.table, n.values + b"x"),
        lambda n: Notes(b"[[0,0,64,2,6],[true,4096,64,2,6]]", n.values),
        lambda n: Notes(b"[[0,0,64,2,6],[2,4096,64,2,6]]", n.values),
        lambda n: Notes(b"[" * 100_000, n.values),
        lambda n: Notes(b"[]", b""),
    ],
    ids=["short", "long", "no number", "a gap", "deep", "none"],
)
def test_notes_that_do_not_add_up_are_refused(change: Callable[[Notes], Notes]) -> None:
    """Neither a length, nor a rank, nor the index itself is believed."""
    notes = encode_parts([_part(0, 0), _part(1, 4096)])
    with pytest.raises(ProtocolError):
        parts_of(change(notes), world=2, image_bytes=8192)
