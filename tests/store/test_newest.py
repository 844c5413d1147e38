import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.checkpoints import IDENTITY, Passed, begin, snapshot
from fakes.stores import CountingStore
from outlive.errors import Damaged, NotFound, Superseded
from outlive.objects.interface import ObjectInfo
from outlive.objects.local import LocalStore
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.commit import Committer
from outlive.store.fetch import restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.lives import Claim, Life, adopt, claim, newest_life
from outlive.store.newest import checkpoints, newest_first, preferred, read_manifest
from outlive.store.survey import survey

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


def oracle(found: list[CheckpointId], rewound: dict[int, CheckpointId | None]) -> list[CheckpointId]:
    """The format's words, checkpoint by checkpoint: what lies between a rewind and its target is passed over.

    Only rewinds that are themselves not passed over count, so they are found from the newest one downwards.
    """
    gaps: list[tuple[CheckpointId, CheckpointId]] = []
    limit = layout.MAX_LIFE
    while any(life <= limit for life in rewound):
        life = max(life for life in rewound if life <= limit)
        target = rewound[life]
        gaps.append((target or CheckpointId(1, 0), CheckpointId(life, 0)))
        if target is None:
            return sorted((c for c in found if c.life >= life and not hidden(c, gaps[:-1])), reverse=True)
        limit = target.life
    return sorted((c for c in found if not hidden(c, gaps)), reverse=True)


def hidden(checkpoint: CheckpointId, gaps: list[tuple[CheckpointId, CheckpointId]]) -> bool:
    return any(low < checkpoint < high for low, high in gaps)


checkpoint_ids = st.builds(CheckpointId, st.integers(1, 6), st.integers(0, 5))


@st.composite
def rewinds(draw: st.DrawFn) -> dict[int, CheckpointId | None]:
    lives = draw(st.sets(st.integers(2, 7)))
    return {
        life: draw(st.none() | st.builds(CheckpointId, st.integers(1, life - 1), st.integers(0, 5)))
        for life in lives
    }


@given(st.lists(checkpoint_ids, unique=True), rewinds())
def test_the_order_is_the_formats(found: list[CheckpointId], rewound: dict[int, CheckpointId | None]) -> None:
    """Newest life, then highest step, with everything between a rewind and its target passed over."""
    assert preferred(found, rewound) == oracle(found, rewound)


class Training:
    """A run as people and accidents make it, with what they may expect of it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.lives: list[Committer] = []
        self.step: dict[int, int] = {}
        self.expected: CheckpointId | None = None

    def resume(self, *, back_to: CheckpointId | None = None) -> None:
        life = begin(self.store, back_to=back_to)
        self.lives.append(life)
        self.step[life.life.number] = life.parent.step if life.parent else 0
        if back_to:
            self.expected = back_to
        assert (life.parent.id if life.parent else None) == self.expected

    def save(self, which: int) -> None:
        life = self.lives[which % len(self.lives)]
        number = life.life.number
        self.step[number] += 1
        try:
            life.commit(snapshot(self.step[number], b"%d-%d" % (number, self.step[number])))
        except Superseded:
            assert newest_life(self.store, "gpt") > number
        else:
            self.expected = CheckpointId(number, self.step[number])


@given(
    st.lists(
        st.tuples(st.sampled_from(["crash", "resume", "rewind", "save", "save"]), st.integers(0, 9)),
        max_size=14,
    )
)
def test_the_next_life_resumes_from_the_last_acknowledged_or_chosen_one(
    happened: list[tuple[str, int]],
) -> None:
    """Through crashes, zombies that go on saving, and rewinds: the last acknowledged or chosen one counts.

    An unacknowledged checkpoint may be taken only where it is newer than that in the same life.
    """
    run = Training()
    for what, which in happened:
        known = layout_ids(run.store)
        if what == "crash":
            claim(run.store, "gpt", identity=IDENTITY)
        elif what == "rewind" and known:
            run.resume(back_to=known[which % len(known)])
        elif what == "save" and run.lives:
            before = checkpoints(run.store, "gpt")[:1]
            run.save(which)
            (first,) = checkpoints(run.store, "gpt")[:1]
            if run.expected != first:
                # A superseded life has put something in front: only where no newer life has saved or rewound.
                assert not before or first > before[0]
                run.expected = first
        elif what == "resume":
            run.resume()


def layout_ids(store: MemoryStore) -> list[CheckpointId]:
    found = (layout.parse_manifest("gpt", info.key) for info in store.list(layout.manifests("gpt")))
    return [checkpoint for checkpoint in found if checkpoint]


def ids(*pairs: tuple[int, int]) -> list[CheckpointId]:
    return [CheckpointId(*pair) for pair in pairs]


def test_a_rewind_holds_when_the_life_that_rewound_never_saved() -> None:
    """Going back survives a crash right after it."""
    found = ids((1, 1), (1, 2), (2, 3))
    assert preferred(found, {3: CheckpointId(1, 1)}) == ids((1, 1))


def test_a_zombie_that_saves_after_being_rewound_away_is_passed_over() -> None:
    """What the abandoned life still commits does not come back."""
    store = MemoryStore()
    zombie = begin(store)
    zombie.commit(snapshot(1, b"a"))
    zombie.commit(snapshot(2, b"b"))
    begin(store, back_to=CheckpointId(1, 1))
    with pytest.raises(Superseded):
        zombie.commit(snapshot(3, b"c"))
    assert checkpoints(store, "gpt") == ids((1, 1))


def test_a_later_rewind_may_bring_back_what_an_earlier_one_left() -> None:
    """The last decision counts: going forward again to an abandoned checkpoint is possible."""
    found = ids((1, 1), (1, 2), (3, 2))
    assert preferred(found, {3: CheckpointId(1, 1)}) == ids((3, 2), (1, 1))
    assert preferred(found, {3: CheckpointId(1, 1), 4: CheckpointId(1, 2)}) == ids((1, 2), (1, 1))


def test_a_rewind_to_nothing_begins_from_zero() -> None:
    """Below such a life nothing is left."""
    assert preferred(ids((1, 1), (2, 1)), {2: None}) == ids((2, 1))


def test_choosing_costs_two_listings_however_many_lives_there_were() -> None:
    """A month of reclaims does not make the next start slow."""
    store = MemoryStore()
    for _ in range(20):
        begin(store).commit(snapshot(1, b"a"))
    counting = CountingStore(store)
    assert len(checkpoints(counting, "gpt")) == 20
    assert len(counting.seen) == 2


class Pages(CountingStore):
    """Counts the keys that were listed, too."""

    keys = 0

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, after=after):
            self.keys += 1
            yield info


def filled(*, lives: int, each: int) -> Pages:
    """A long run: whole checkpoints in its newest life, only their keys below it."""
    store = MemoryStore()
    for life in range(1, lives + 1):
        committer = Committer(store, claim(store, "gpt", identity=IDENTITY), parent=None)
        for step in range(1, each + 1):
            if life < lives:
                store.put(layout.manifest("gpt", CheckpointId(life, step)), b"")
            elif step in {1, each}:
                committer.commit(snapshot(step, b"%d" % step))
    return Pages(store)


def test_a_resume_asks_as_little_among_ten_thousand_checkpoints_as_among_ten() -> None:
    """The decision costs a handful of requests and a page of keys: a long run starts as fast as a new one."""
    run = filled(lives=100, each=100)
    claim(run.inner, "gpt", identity=IDENTITY)
    found = restore_newest(run, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=Passed())
    assert found is not None
    assert found.manifest.id == CheckpointId(100, 100)
    assert [what for what in run.seen if "/chunks/" not in what[1]] == [
        ("list", "gpt/lives/"),
        ("list", "gpt/checkpoints/"),  # what is of the life that asks, or of a later one: nothing
        ("list", "gpt/checkpoints/000100-"),
        ("get", layout.manifest("gpt", CheckpointId(100, 100))),
    ]
    assert run.keys < 1000


def test_many_lives_without_a_checkpoint_cost_few_listings_more() -> None:
    """A machine that died at each start, a hundred times, is neither a hundred requests nor all the keys."""
    run = filled(lives=300, each=3)
    for _ in range(100):
        claim(run.inner, "gpt", identity=IDENTITY)
    assert next(newest_first(run, "gpt")) == CheckpointId(300, 3)
    assert len(run.seen) <= 10
    assert run.keys < 1000


@given(st.lists(checkpoint_ids, unique=True), rewinds(), st.sets(st.integers(1, 9)))
def test_what_is_asked_piece_by_piece_is_the_same_order(
    found: list[CheckpointId], rewound: dict[int, CheckpointId | None], lives: set[int]
) -> None:
    """Whatever lives have a claim: one that somebody removed hides no checkpoint."""
    store = MemoryStore()
    for number in lives:
        claimed = Claim(run="gpt", life=number, nonce="0" * 32, claimed_at=NOW, identity=IDENTITY)
        store.put(layout.life("gpt", number), claimed.encode())
    for checkpoint in found:
        store.put(layout.manifest("gpt", checkpoint), b"")
    for number, target in rewound.items():
        adopt(store, Life(run="gpt", number=number, nonce="0" * 32), target, rewind=True)
    assert list(newest_first(store, "gpt")) == checkpoints(store, "gpt")


def test_an_altered_rewind_stops_the_reader() -> None:
    """Nobody guesses whether what comes next was abandoned."""
    store = MemoryStore()
    begin(store).commit(snapshot(1, b"a"))
    begin(store, back_to=CheckpointId(1, 1))
    key = layout.adopted("gpt", 2, rewind=True)
    store.put(key, b"{}")
    with pytest.raises(Damaged, match="life 2") as caught:
        checkpoints(store, "gpt")
    assert key in caught.value.hint


def test_a_manifest_under_another_key_is_damaged() -> None:
    """A copied manifest is not a second checkpoint."""
    store = MemoryStore()
    begin(store).commit(snapshot(1, b"a"))
    body = store.get(layout.manifest("gpt", CheckpointId(1, 1)), at_most=9999)
    store.put(layout.manifest("gpt", CheckpointId(1, 2)), body)
    store.put(layout.manifest("other", CheckpointId(1, 1)), body)
    for run, checkpoint in (("gpt", CheckpointId(1, 2)), ("other", CheckpointId(1, 1))):
        with pytest.raises(Damaged, match="is the manifest of gpt"):
            read_manifest(store, run, checkpoint)
    with pytest.raises(NotFound):
        read_manifest(store, "gpt", CheckpointId(9, 9))


def test_foreign_keys_are_no_checkpoints() -> None:
    """Somebody's stray files beside the manifests are passed over."""
    store = MemoryStore()
    store.put("gpt/checkpoints/readme.txt", b"")
    store.put("gpt/checkpoints/000001-000000000001.json.bak", b"")
    assert checkpoints(store, "gpt") == []


def test_what_is_no_file_in_a_manifests_place_is_told(tmp_path: Path) -> None:
    """A restore passes over a pipe, a link or a directory, and says which; so does a look at the run."""
    store = LocalStore(tmp_path / "store")
    committer = begin(store)
    for step in (1, 2, 3, 4):
        committer.commit(snapshot(step, b"%d" % step))
    places = [tmp_path / "store" / layout.manifest("gpt", CheckpointId(1, step)) for step in (2, 3, 4)]
    for place in places:
        place.unlink()
    places[0].mkdir()
    places[1].symlink_to(tmp_path / "nowhere")
    os.mkfifo(places[2])
    passed = Passed()
    found = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=passed)
    assert found is not None
    assert found.manifest.step == 1
    words = [str(error).partition(" is ")[2] for error in passed.errors]
    assert words == ["a named pipe and no file", "a symbolic link and no file", "a directory and no file"]
    assert {checkpoint.step for checkpoint in survey(store, "gpt").unreadable} == {2, 3, 4}
