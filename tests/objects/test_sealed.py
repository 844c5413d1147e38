"""Seals: what nobody else wrote is read, and nothing else is."""

import os
from collections.abc import Callable

import pytest

from fakes.checkpoints import Passed, begin, keys, restored, snapshot
from outlive.errors import ConfigError, Damaged
from outlive.objects.memory import MemoryStore
from outlive.objects.sealed import Encryption, Seal, Sealed, Signature, find_seal
from outlive.store.fetch import restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.newest import read_manifest

KEY, OTHER = b"k" * 32, b"o" * 32
SECRET = b"the weights of the model " * 100

both = pytest.mark.parametrize("kind", [Encryption, Signature])


@both
@pytest.mark.parametrize(
    "harm",
    [
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: bytes([raw[0] ^ 1]) + raw[1:],
        lambda raw: raw[:20] + bytes([raw[20] ^ 1]) + raw[21:],
        lambda raw: raw[:-1],
        lambda raw: raw + b"x",
        lambda raw: raw[:5],
        lambda raw: b"",
        lambda raw: SECRET,
    ],
    ids=["end", "mark", "seal", "shorter", "longer", "stump", "empty", "without a seal"],
)
def test_what_was_touched_is_refused(kind: Callable[[bytes], Seal], harm: Callable[[bytes], bytes]) -> None:
    """An object that anyone without the key changed is damage, whatever they did."""
    inner = MemoryStore()
    store = Sealed(inner, kind(KEY))
    store.put("run/lives/1", SECRET)
    inner.put("run/lives/1", harm(inner.get("run/lives/1", at_most=1 << 20)))
    with pytest.raises(Damaged) as refused:
        store.get("run/lives/1", at_most=1 << 20)
    assert "memory: run/lives/1" in str(refused.value)
    assert refused.value.hint


@both
def test_another_key_and_another_place_are_refused(kind: Callable[[bytes], Seal]) -> None:
    """What was sealed with another key, or put elsewhere by somebody, does not count."""
    inner = MemoryStore()
    Sealed(inner, kind(KEY)).put("run/a", SECRET)
    with pytest.raises(Damaged, match="with another key"):
        Sealed(inner, kind(OTHER)).get("run/a", at_most=1 << 20)
    inner.put("run/b", inner.get("run/a", at_most=1 << 20))
    with pytest.raises(Damaged, match="altered"):
        Sealed(inner, kind(KEY)).get("run/b", at_most=1 << 20)


def test_nothing_is_readable_in_an_encrypted_store() -> None:
    """Neither tensors nor values nor the manifest's words are in the bucket; equal chunks are sent once."""
    inner = MemoryStore()
    store = Sealed(inner, Encryption(KEY))
    life = begin(store)
    first = life.commit(snapshot(1, SECRET, b"one", metrics={"loss": 0.5}))
    second = life.commit(snapshot(2, SECRET, b"two", metrics={"loss": 0.25}))
    assert second.sent_bytes < first.sent_bytes < second.manifest.total_bytes * 2
    found = restored(store)
    assert found is not None
    assert found[0].step == 2
    assert found[1].startswith(SECRET)
    for info in inner.list(""):
        raw = inner.get(info.key, at_most=1 << 20)
        assert not any(word in raw for word in (b"weights", b"outlive", b"loss", b"host-a")), info.key


def test_a_forged_checkpoint_is_not_restored_from_a_signed_store() -> None:
    """Whoever may write to the bucket, but has no key, can not make the run continue from theirs."""
    inner = MemoryStore()
    store = Sealed(inner, Signature(KEY))
    begin(store).commit(snapshot(1, SECRET))
    forger = begin(inner, "other")
    forger.commit(snapshot(9, b"evil" * 100))
    for key in keys(inner, "other/"):
        if "/lives/" not in key:
            body = inner.get(key, at_most=1 << 20).replace(b'"other"', b'"gpt"')
            inner.put(key.replace("other/", "gpt/", 1), body)
    passed = Passed()
    found = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=passed)
    assert found is not None
    assert found.manifest.step == 1
    assert passed.ids == [CheckpointId(1, 9)]


def test_a_reader_without_the_key_is_told() -> None:
    """Somebody who forgot the key learns that there is one, not that the store is broken."""
    inner = MemoryStore()
    begin(Sealed(inner, Encryption(KEY))).commit(snapshot(1, SECRET))
    with pytest.raises(Damaged, match="is encrypted or signed") as refused:
        read_manifest(inner, "gpt", CheckpointId(1, 1))
    assert "OUTLIVE_ENCRYPTION_KEY" in refused.value.hint


def test_keys_are_found_and_checked() -> None:
    """64 hexadecimal digits make a key; both at once, and anything else, are refused without being shown."""
    digits = os.urandom(32).hex()
    assert find_seal({}) is None
    assert isinstance(find_seal({"OUTLIVE_ENCRYPTION_KEY": digits}), Encryption)
    assert isinstance(find_seal({"OUTLIVE_SIGNING_KEY": f" {digits}\n"}), Signature)
    for wrong in ({"OUTLIVE_ENCRYPTION_KEY": "secret"}, {"OUTLIVE_SIGNING_KEY": digits[1:]}):
        with pytest.raises(ConfigError, match="64 hexadecimal") as refused:
            find_seal(wrong)
        assert next(iter(wrong.values())) not in str(refused.value)
    with pytest.raises(ConfigError, match="both"):
        find_seal({"OUTLIVE_ENCRYPTION_KEY": digits, "OUTLIVE_SIGNING_KEY": digits})
