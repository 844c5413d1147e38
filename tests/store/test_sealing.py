"""Whether a run can be read with the key at hand, asked before anything is written."""

import os

import pytest

from fakes.checkpoints import begin, snapshot
from outlive.errors import ConfigError
from outlive.objects.memory import MemoryStore
from outlive.objects.sealed import Encryption, Seal, Sealed, Signature
from outlive.store import layout
from outlive.store.sealing import check_seal

KEY, OTHER = os.urandom(32), os.urandom(32)
SEALS = [Encryption(KEY), Signature(KEY)]


@pytest.mark.parametrize(
    ("made", "given", "said", "hint"),
    [
        (Encryption(KEY), None, "is encrypted, and no key is given", "set OUTLIVE_ENCRYPTION_KEY"),
        (Signature(KEY), None, "is signed, and no key is given", "set OUTLIVE_SIGNING_KEY"),
        (Encryption(KEY), Encryption(OTHER), "encrypted with another key", "set OUTLIVE_ENCRYPTION_KEY"),
        (Signature(KEY), Signature(OTHER), "signed with another key", "set OUTLIVE_SIGNING_KEY"),
        (
            Encryption(KEY),
            Signature(KEY),
            "is encrypted, and OUTLIVE_SIGNING_KEY is",
            "OUTLIVE_ENCRYPTION_KEY",
        ),
        (
            None,
            Encryption(KEY),
            "is not sealed, and OUTLIVE_ENCRYPTION_KEY is",
            "unset OUTLIVE_ENCRYPTION_KEY",
        ),
    ],
)
@pytest.mark.parametrize("claims", [True, False])
def test_who_may_not(
    made: "Seal | None", given: "Seal | None", said: str, hint: str, *, claims: bool
) -> None:
    """No key, another key, another kind of key, a key too many: each is told, with the variable's name."""
    inner = MemoryStore()
    begin(inner if made is None else Sealed(inner, made)).commit(snapshot(1, b"x" * 100))
    if not claims:  # they were removed: a manifest tells as well
        inner.delete([info.key for info in inner.list(layout.lives("gpt"))])
    with pytest.raises(ConfigError, match=said) as refused:
        check_seal(inner if given is None else Sealed(inner, given), "gpt")
    assert hint in refused.value.hint


@pytest.mark.parametrize("seal", [None, *SEALS])
def test_who_may(seal: "Seal | None") -> None:
    """The same key, or none at either end; a new run takes any."""
    inner = MemoryStore()
    store = inner if seal is None else Sealed(inner, seal)
    check_seal(store, "gpt")
    begin(store).commit(snapshot(1, b"x" * 100))
    check_seal(store, "gpt")
    check_seal(Sealed(inner, Encryption(OTHER)), "another")


@pytest.mark.parametrize("seal", SEALS)
@pytest.mark.parametrize("rubbish", [b"", b"{}", b"OLE1" + bytes(60), b"OLS1" + bytes(60)])
def test_planted(seal: Seal, rubbish: bytes) -> None:
    """A claim that somebody else wrote, or that is damaged, keeps nobody who has the key from the run."""
    inner = MemoryStore()
    store = Sealed(inner, seal)
    begin(store).commit(snapshot(1, b"x" * 100))
    inner.put(layout.life("gpt", 7), rubbish)
    check_seal(store, "gpt")


def test_a_damaged_claim_is_no_seal() -> None:
    """Without a key, what can't be read for another reason is left to those who read it."""
    inner = MemoryStore()
    inner.put(layout.life("gpt", 1), b"rubbish")
    check_seal(inner, "gpt")
