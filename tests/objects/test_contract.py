"""What every object store promises, checked on every one of them, S3 on three real servers."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlive.errors import AlreadyExists, Damaged, NotFound, StoreError
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import probe

MIB = 1024 * 1024
BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    "..",
    "../a",
    "a/../b",
    "a/..",
    ".",
    "a/./b",
    "a\0b",
    "a\nb",
    "\ud800",
    "x" * 1001,
]


def fill(store: ObjectStore, *keys: str) -> None:
    for key in keys:
        store.put(key, key.encode())


def keys_of(store: ObjectStore, prefix: str = "", after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


@pytest.mark.parametrize("size", [0, 1, 4096, MIB - 1, MIB, 5 * MIB + 3])
def test_gives_back_what_was_put(store: ObjectStore, size: int) -> None:
    """Both ways of reading return exactly the bytes that were put, whatever their number."""
    body = os.urandom(size)
    store.put("run/chunks/x", body)
    buffer = bytearray(size)
    store.read_into("run/chunks/x", memoryview(buffer))
    assert bytes(buffer) == body
    assert store.get("run/chunks/x", at_most=size) == body


def test_takes_and_fills_a_part_of_a_buffer(store: ObjectStore) -> None:
    """A slice of a big buffer is put and filled in place; its neighbours are untouched."""
    image = bytearray(os.urandom(4 * MIB))
    part = memoryview(image)[MIB : 3 * MIB]
    store.put("a", part)
    target = bytearray(4 * MIB)
    store.read_into("a", memoryview(target)[MIB : 3 * MIB])
    assert target == bytes(MIB) + image[MIB : 3 * MIB] + bytes(MIB)


def test_a_later_put_replaces(store: ObjectStore) -> None:
    """A plain put replaces the object as a whole, also by a shorter one."""
    store.put("a/b", b"first and longer")
    store.put("a/b", b"second")
    assert store.get("a/b", at_most=100) == b"second"
    assert [info.size for info in store.list("a/")] == [6]


def test_create_only_keeps_the_first(store: ObjectStore) -> None:
    """A create-only put on a taken key says so and changes nothing, whether the body is small or bulk."""
    store.put("a", b"mine", create_only=True)
    for body in (b"theirs", bytes(2 * MIB)):
        with pytest.raises(AlreadyExists, match="a exists already"):
            store.put("a", body, create_only=True)
    assert store.get("a", at_most=100) == b"mine"


@pytest.mark.parametrize("size", [32, 2 * MIB])
def test_create_only_has_one_winner(store: ObjectStore, size: int) -> None:
    """Of 16 writers at once exactly one wins and the object is its own, where the store declares it."""
    for number in range(3):
        key = f"lives/{number}"
        bodies = [bytes([writer]) * size for writer in range(16)]
        start = threading.Barrier(16)

        def write(body: bytes, key: str = key, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                store.put(key, body, create_only=True)
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(16) as writers:
            winners = [body for body, won in zip(bodies, writers.map(write, bodies), strict=True) if won]
        held = store.get(key, at_most=size)
        assert held in (winners or bodies)
        if store.limits.create_only:
            assert len(winners) == 1


def test_the_probe_agrees_with_what_is_declared(store: ObjectStore) -> None:
    """The probe finds what the store's limits say, tells the store so, and leaves nothing behind."""
    declared = store.limits
    found = probe(store)
    assert (found.create_only, found.lists_at_once, found.deletes) == (declared.create_only, True, True)
    assert store.limits == declared
    if declared.create_only:  # rclone goes on listing what several wrote at once, even when it is deleted
        assert keys_of(store) == []
    assert bool(found.missing) == (not declared.create_only)


def test_missing_objects_are_not_found(store: ObjectStore) -> None:
    """Reading what is not there names the key; a folder of keys is no object; deleting it is no error."""
    fill(store, "a/b")
    for key in ("none", "a", "a/b/c", "a/none"):
        with pytest.raises(NotFound, match=key):
            store.get(key, at_most=10)
        with pytest.raises(NotFound, match=key):
            store.read_into(key, memoryview(bytearray(1)))
    store.delete(["none", "a/none"])
    store.delete([])
    assert keys_of(store) == ["a/b"]


def test_another_length_is_damage(store: ObjectStore) -> None:
    """An object that is longer than allowed, or not as long as the buffer, is refused."""
    store.put("a", b"12345")
    with pytest.raises(Damaged, match=r"a has (5 bytes, more than 4|37 bytes, more than 36)"):
        store.get("a", at_most=4)
    for length in (0, 4, 6, 2 * MIB):
        with pytest.raises(Damaged, match=rf"a has (5 bytes instead of {length}|37 .* of {length + 32})"):
            store.read_into("a", memoryview(bytearray(length)))
    assert store.get("a", at_most=5) == b"12345"


def test_lists_in_the_order_of_bytes(store: ObjectStore) -> None:
    """A listing is sorted by the whole key's bytes, begins with the prefix, and starts behind ``after``."""
    keys = ["a-b", "a.b", "a/b", "a/b-c", "a/b/c", "a0", "ab/c", "b/ä", "b/z", "c"]
    keys.remove("a/b")  # a disk can't hold this beside a/b/c
    fill(store, *reversed(keys[::2]), *keys[1::2])
    assert keys_of(store) == sorted(keys, key=str.encode)
    assert keys_of(store, "a/") == ["a/b-c", "a/b/c"]
    assert keys_of(store, "a/b") == ["a/b-c", "a/b/c"]
    assert keys_of(store, "a") == ["a-b", "a.b", "a/b-c", "a/b/c", "a0", "ab/c"]
    assert keys_of(store, "a", after="a/b-c") == ["a/b/c", "a0", "ab/c"]
    assert keys_of(store, after="a/b") == ["a/b-c", "a/b/c", "a0", "ab/c", "b/z", "b/ä", "c"]
    assert keys_of(store, "b/", after="a") == ["b/z", "b/ä"]
    assert keys_of(store, "b/", after="c") == []
    assert keys_of(store, "none/") == []


def test_lists_more_than_a_page(store: ObjectStore) -> None:
    """1,100 keys come back once each, in order, and 1,001 of them go away again in one call."""
    keys = [f"chunks/{number:05}" for number in range(1100)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda key: store.put(key, b"x"), keys))
    assert keys_of(store, "chunks/") == keys
    assert keys_of(store, "chunks/", after=keys[50]) == keys[51:]
    store.delete(keys[:1001])
    assert keys_of(store, "chunks/") == keys[1001:]


def test_a_listing_tells_size_and_the_stores_time(store: ObjectStore) -> None:
    """Sizes are right, and an object just put is dated by the clock that ``now`` tells."""
    before = store.now()
    store.put("a", b"12345")
    (info,) = store.list("")
    assert info.size == 5
    assert before.tzinfo is not None
    assert before.utcoffset() == timedelta(0)
    assert info.modified.utcoffset() == timezone.utc.utcoffset(None)
    assert before - timedelta(seconds=2) <= info.modified <= store.now() + timedelta(seconds=2)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_refuses_what_is_no_key(store: ObjectStore, key: str) -> None:
    """What some store couldn't hold, or a disk would put elsewhere, is refused by all, for every method."""
    buffer = memoryview(bytearray(1))
    for call in (
        lambda: store.put(key, b""),
        lambda: store.get(key, at_most=1),
        lambda: store.read_into(key, buffer),
        lambda: store.delete(["fine", key]),
    ):
        with pytest.raises(StoreError, match="not a key"):
            call()


_PART = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn", "Co"]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        _PART.filter(lambda part: "/" not in part and part.strip(".") != ""), min_size=1, max_size=3
    )
)
def test_any_printable_key_works(store: ObjectStore, parts: list[str]) -> None:
    """Spaces, quotes, %, +, ? and letters of every script come back from a listing as they were put."""
    key = "key/" + "/".join([*parts, "end"])
    store.put(key, key.encode())
    assert store.get(key, at_most=1000) == key.encode()
    assert [(info.key, info.size) for info in store.list("key/")] == [(key, len(key.encode()))]
    store.delete([key])
    assert keys_of(store) == []


def test_many_threads_read_and_write_at_once(store: ObjectStore) -> None:
    """32 objects written and read by 16 threads at the same time each hold their own bytes."""
    bodies = {f"chunks/{number:02}": os.urandom(300_000) for number in range(32)}

    def pass_through(key: str) -> bool:
        store.put(key, memoryview(bodies[key]))
        buffer = bytearray(len(bodies[key]))
        store.read_into(key, memoryview(buffer))
        return bytes(buffer) == bodies[key]

    with ThreadPoolExecutor(16) as workers:
        assert all(workers.map(pass_through, bodies))


def test_the_location_names_no_secret(store: ObjectStore) -> None:
    """Neither the location nor the repr shows more than where the store is."""
    for text in (store.location, repr(store)):
        assert "SKTEST" not in text
        assert "secret" not in text.lower()
