"""What must hold for a run whatever died when, asked of the store alone."""

from collections.abc import Collection

from fakes.checkpoints import image_of, keys, restored
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.fetch import offsets
from outlive.store.layout import CheckpointId
from outlive.store.lives import read_adoption
from outlive.store.survey import lacks, survey
from outlive.store.verify import verify

FROZEN = b"frozen" * 20


def state(step: int) -> tuple[bytes, bytes]:
    """A frozen tensor, and one that returns to earlier contents, as a deterministic repetition does."""
    return FROZEN, b"%d" % (step % 3)


def check(
    store: ObjectStore, acknowledged: int, *, unacknowledged: Collection[CheckpointId] = (), run: str = "gpt"
) -> None:
    """The newest acknowledged checkpoint, or a later one, restores bit for bit; nothing names what is gone.

    ``acknowledged``: the highest step of which anyone was told that it is saved. ``unacknowledged``: those of
    a superseded life, of which nothing is promised.
    """
    found = restored(store, run)
    assert (found[0].step if found else 0) >= acknowledged
    if found:
        expected, starts = image_of(*state(found[0].step)), offsets(found[0])
        assert len(found[1]) == starts[-1]
        assert all(found[1][at : at + len(expected)] == expected for at in starts[:-1])
    look = survey(store, run)
    assert not look.unreadable
    for checkpoint, manifest in look.manifests.items():
        if checkpoint not in unacknowledged:
            assert not [*lacks(manifest, look.chunks)]
            assert verify(store, manifest).ok
    for key in keys(store, f"{run}/lives/"):
        claim = layout.parse_claim(run, key)
        adoption = read_adoption(store, run, claim.life) if claim else None
        assert adoption is None or adoption.checkpoint is None or adoption.checkpoint.life < adoption.life


def check_no_garbage(store: ObjectStore, kept: Collection[CheckpointId], *, run: str = "gpt") -> None:
    """Exactly these checkpoints and what they name: nothing less is left, and nothing more."""
    look = survey(store, run)
    assert set(look.written) == set(kept)
    named = {
        layout.chunk(run, blob.home, blake3=blob.blake3)
        for manifest in look.manifests.values()
        for blob in manifest.blobs()
    }
    assert set(keys(store, f"{run}/chunks/")) == named
    assert not keys(store, f"{run}/inbox/")
    known = ("checkpoints/", "chunks/", "lives/", "history/")
    assert all(key.removeprefix(f"{run}/").startswith(known) for key in keys(store, f"{run}/"))
