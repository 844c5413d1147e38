import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import ConfigError
from outlive.store import layout
from outlive.store.layout import ClaimKey, EventKey

ids = st.builds(layout.CheckpointId, st.integers(1, layout.MAX_LIFE), st.integers(0, layout.MAX_STEP))
names = st.from_regex(layout.RUN_NAME, fullmatch=True)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(ids, ids)
def test_keys_of_checkpoints_sort_as_the_checkpoints_do(
    one: layout.CheckpointId, other: layout.CheckpointId
) -> None:
    """A listing shows checkpoints by life and then by step."""
    assert (one < other) == (layout.manifest("r", one) < layout.manifest("r", other))


@given(names, ids, digests)
def test_keys_are_read_back(run: str, checkpoint: layout.CheckpointId, digest: str) -> None:
    """Every key that is made is understood."""
    assert (checkpoint, digest) == layout.parse_chunk(run, layout.chunk(run, checkpoint, blake3=digest))
    assert checkpoint == layout.parse_manifest(run, layout.manifest(run, checkpoint))
    assert checkpoint == layout.CheckpointId.parse(str(checkpoint))
    assert run == layout.run_of(layout.manifest(run, checkpoint))
    number, nonce = checkpoint.life, digest[:32]
    assert ClaimKey(life=number, nonce=None) == layout.parse_claim(run, layout.life(run, number))
    keyed = layout.keyed_life(run, number, nonce=nonce)
    assert ClaimKey(life=number, nonce=nonce) == layout.parse_claim(run, keyed)
    assert number == layout.parse_rewound(run, layout.adopted(run, number, rewind=True))
    assert None is layout.parse_rewound(run, layout.adopted(run, number))
    assert None is layout.parse_claim(run, layout.adopted(run, number))
    event = layout.history(run, number, sequence=7, event="saved")
    assert EventKey(life=number, sequence=7, event="saved") == layout.parse_history(run, event)
    assert "a-1" == layout.parse_inbox(run, layout.inbox(run, "a-1"))


@given(st.text(max_size=80), st.sampled_from(["chunks", "checkpoints", "lives", "history", "inbox", "x"]))
def test_foreign_keys_are_nothing(rest: str, folder: str) -> None:
    """A key that outlive would not have written is never taken for one; the exact spelling is asked for."""
    key = f"r/{folder}/{rest}"
    manifest, chunk = layout.parse_manifest("r", key), layout.parse_chunk("r", key)
    claim, event = layout.parse_claim("r", key), layout.parse_history("r", key)
    assert manifest is None or layout.manifest("r", manifest) == key
    assert chunk is None or layout.chunk("r", chunk[0], blake3=chunk[1]) == key
    assert claim is None or folder == "lives"
    assert event is None or layout.history("r", event.life, sequence=event.sequence, event=event.event) == key


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "a b", "ä", "x" * 65, "..", "a\n", "٣"])
def test_run_names_that_would_leave_their_place_are_refused(name: str) -> None:
    """A run's name becomes part of every key, so only plain names pass."""
    with pytest.raises(ConfigError):
        layout.check_run_name(name)


@pytest.mark.parametrize("digest", ["", "../../x", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_a_digest_from_a_hostile_manifest_never_becomes_a_key(digest: str) -> None:
    """Only 64 hex digits name a chunk."""
    with pytest.raises(ValueError, match="BLAKE3"):
        layout.chunk("r", layout.CheckpointId(1, 1), blake3=digest)


@given(names, names)
def test_jumping_over_a_run_skips_its_keys_and_no_other(run: str, other: str) -> None:
    """In a listing, everything of a run lies before the point to jump to, and no later run's key does."""
    point = layout.after_run(run)
    assert f"{run}/lives/000001.json" < point
    if other > run and other != run:
        key = f"{other}/lives/000001.json"
        assert key > point or key < f"{run}/"


@pytest.mark.parametrize(
    "text", ["", "1-1", "000001-00000000120", "000000-000000000001", "000001-00000000120x"]
)
def test_only_whole_checkpoint_names_are_read(text: str) -> None:
    """A checkpoint's name has six and twelve digits, and life 0 never was."""
    with pytest.raises(ValueError, match="checkpoint"):
        layout.CheckpointId.parse(text)
