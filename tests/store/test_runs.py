from fakes.checkpoints import begin, hurt, keys, snapshot
from fakes.stores import CountingStore
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.events import write_event
from outlive.store.layout import CheckpointId
from outlive.store.runs import runs, summarize


def test_runs_are_found_among_other_peoples_objects() -> None:
    """Only names with a life or a checkpoint are runs; neighbours in the order of keys are all found."""
    store = MemoryStore()
    names = ["a", "a-b", "a.b", "a0", "a_b", "ab", "b"]
    for name in names:
        begin(store, name).commit(snapshot(1, b"x"))
    for key in ("readme.md", "pictures/cat.jpg", "a", "ä/lives/000001.json", "~/x", "zz/lives"):
        store.put(key, b"")
    assert list(runs(store)) == sorted(names, key=lambda name: f"{name}/")


def test_listing_runs_does_not_read_through_their_chunks() -> None:
    """A few requests a run, however many objects it has."""
    store = MemoryStore()
    for name in ("one", "two"):
        committer = begin(store, name)
        for step in range(5):
            committer.commit(snapshot(step, b"%d" % step, b"%d!" % step))
    counting = CountingStore(store)
    assert list(runs(counting)) == ["one", "two"]
    assert len(counting.seen) == 5


def test_a_summary_says_how_a_run_stands() -> None:
    """Newest checkpoint, how many, what a rewind left behind, the last life and what it last said."""
    store = MemoryStore()
    first = begin(store)
    for step in (1, 2, 3):
        first.commit(snapshot(step, b"%d" % step))
    write_event(store, first.life, "ended", outcome="reclaimed")
    found = summarize(store, "gpt")
    assert found.newest == first.newest
    assert (found.checkpoints, found.abandoned, found.lives, found.stored_bytes) == (3, 0, 1, None)
    assert found.last_event is not None
    assert found.last_event.details == {"outcome": "reclaimed"}
    begin(store, back_to=CheckpointId(1, 1))
    found = summarize(store, "gpt", sizes=True)
    assert found.newest is not None
    assert (found.newest.id, found.abandoned, found.lives) == (CheckpointId(1, 1), 2, 2)
    assert found.last_event is None
    assert found.last_claim is not None
    assert found.last_claim.identity.host == "host-a"
    assert found.stored_bytes == sum(info.size for info in store.list("gpt/"))


def test_a_summary_survives_what_is_damaged() -> None:
    """An unreadable manifest or claim does not keep the rest from being shown."""
    store = MemoryStore()
    committer = begin(store)
    committer.commit(snapshot(1, b"a"))
    committer.commit(snapshot(2, b"b"))
    hurt(store, layout.manifest("gpt", CheckpointId(1, 2)), by="altered")
    hurt(store, layout.life("gpt", 1), by="short")
    found = summarize(store, "gpt")
    assert found.newest is not None
    assert (found.newest.step, found.checkpoints, found.last_claim) == (1, 2, None)


def test_an_empty_store_has_no_runs() -> None:
    """Nothing is no error."""
    store = MemoryStore()
    assert list(runs(store)) == []
    assert summarize(store, "gpt").newest is None
    assert keys(store) == []
