import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fakes.checkpoints import IDENTITY, begin, keys, later_life, snapshot
from fakes.stores import BlockingStore, FailingStore, LyingStore, UnconditionalStore
from outlive.errors import ConfigError, Damaged, NotFound, StoreError, Superseded, Unavailable
from outlive.objects.interface import ObjectStore
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.layout import MAX_LIFE, CheckpointId
from outlive.store.lives import (
    Identity,
    adopt,
    check_newest,
    claim,
    hold,
    is_newest,
    newest_life,
    read_adoption,
    read_claim,
)

STORES = [MemoryStore, UnconditionalStore]


@pytest.mark.parametrize("kind", STORES)
def test_lives_count_upwards(kind: type[MemoryStore]) -> None:
    """Each claim gets the next number, and only the last one is the newest."""
    store = kind()
    one, two = (claim(store, "gpt", identity=IDENTITY) for _ in range(2))
    assert (one.number, two.number) == (1, 2)
    assert [is_newest(store, one), is_newest(store, two)] == [False, True]
    assert read_claim(store, "gpt", 2).nonce == two.nonce
    assert newest_life(store, "gpt") == 2
    assert newest_life(store, "other") == 0


@pytest.mark.parametrize("kind", STORES)
def test_a_number_never_has_two_owners(kind: type[MemoryStore]) -> None:
    """Many machines that claim at the same moment get a number each, whatever the store honours."""
    for _ in range(20):
        store = kind()
        barrier = threading.Barrier(6)

        def race(store: ObjectStore = store, barrier: threading.Barrier = barrier) -> int:
            barrier.wait(10)
            return claim(store, "gpt", identity=IDENTITY).number

        with ThreadPoolExecutor(6) as pool:
            numbers = [future.result() for future in [pool.submit(race) for _ in range(6)]]
        assert len(set(numbers)) == 6


def test_without_create_only_a_claimer_that_comes_late_gives_way() -> None:
    """A claim that was long under way sees the owner and takes the next number: no delay is needed."""
    store = UnconditionalStore()
    slow = BlockingStore(store, stops=lambda action, key: action == "put")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(claim, slow, "gpt", identity=IDENTITY)
        assert slow.arrived.wait(10)
        owner = claim(store, "gpt", identity=IDENTITY)
        slow.go.set()
        second = late.result(10)
    assert owner.number == 1
    assert second.number in (2, 3)
    assert not is_newest(store, owner)


def test_a_stale_claim_that_lands_beside_the_owner_takes_nothing() -> None:
    """Without create-only, a request given up long ago may still arrive: the owner stays the owner."""
    store = UnconditionalStore()
    owner = claim(store, "gpt", identity=IDENTITY)
    store.put(layout.keyed_life("gpt", 1, nonce="0" * 32), b"{}")
    assert is_newest(store, owner)


def test_both_kinds_of_claims_respect_each_other() -> None:
    """A machine that believes in create-only and one that does not never share a number."""
    store = MemoryStore()
    store.put(layout.keyed_life("gpt", 1, nonce="0" * 32), b"{}")
    assert claim(store, "gpt", identity=IDENTITY).number == 2
    other = UnconditionalStore()
    other.put(layout.life("gpt", 1), b"{}")
    assert claim(other, "gpt", identity=IDENTITY).number == 2


def test_a_lost_answer_does_not_make_a_rival_of_ourselves() -> None:
    """The claim took effect, its repetition meets AlreadyExists: reading it back shows our own nonce."""

    class Echo(MemoryStore):
        def put(self, key: str, body: bytes | memoryview, *, create_only: bool = False) -> None:
            super().put(key, body, create_only=create_only)
            super().put(key, body, create_only=create_only)

    assert claim(Echo(), "gpt", identity=IDENTITY).number == 1


def test_a_claim_that_was_replaced_is_noticed() -> None:
    """A store that ignores create-only after all gives a number to two; the first finds out."""
    store = LyingStore()
    slow = BlockingStore(store, stops=lambda action, key: action == "put")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(claim, slow, "gpt", identity=IDENTITY)
        assert slow.arrived.wait(10)
        first = claim(store, "gpt", identity=IDENTITY)
        slow.go.set()
        second = late.result(10)
    assert first.number == second.number
    assert [is_newest(store, first), is_newest(store, second)] == [False, True]
    with pytest.raises(Superseded, match="another owner"):
        check_newest(store, first)


def test_the_error_names_the_machine_that_took_over() -> None:
    """Who is superseded learns by whom."""
    store = MemoryStore()
    one = claim(store, "gpt", identity=IDENTITY)
    claim(store, "gpt", identity=Identity(host="host-b", machine="", pid=9, command=(), cwd=""))
    with pytest.raises(Superseded, match=r"life 2 on host-b \(pid 9\)"):
        check_newest(store, one)


@pytest.mark.parametrize("kind", STORES)
def test_a_claim_that_was_removed_is_put_back(kind: type[MemoryStore]) -> None:
    """A claim that somebody deleted costs nothing: the same claim stands again."""
    store = kind()
    life = claim(store, "gpt", identity=IDENTITY)
    (key,) = keys(store, "gpt/lives/")
    body = store.get(key, at_most=9999)
    store.delete([key])
    assert not is_newest(store, life)
    with pytest.raises(StoreError, match="was removed"):
        check_newest(store, life)
    assert [hold(store, life), hold(store, life)] == [True, False]
    assert store.get(key, at_most=9999) == body
    store.delete([key])
    heir = replace(life, claim=None)  # an agent that went on with the life of another
    assert hold(store, heir)
    assert is_newest(store, life)


@pytest.mark.parametrize("kind", STORES)
def test_a_claim_is_not_put_back_beside_one_that_took_its_place(kind: type[MemoryStore]) -> None:
    """Whoever took the number meanwhile, or a higher one, keeps it: the life is superseded."""
    store = kind()
    life = claim(store, "gpt", identity=IDENTITY)
    store.delete(keys(store))
    other = claim(store, "gpt", identity=IDENTITY)
    assert other.number == life.number
    before = keys(store)
    with pytest.raises(Superseded, match="another owner"):
        hold(store, life)
    assert keys(store) == before
    assert not hold(store, other)
    newer = begin(store)
    newer.commit(snapshot(1, b"x"))
    store.delete(keys(store, "gpt/lives/"))
    with pytest.raises(Superseded, match="life 2"):
        hold(store, other)


def test_a_claim_that_lands_while_ours_is_put_back_takes_the_number() -> None:
    """Putting back is a claim like any other: of two that meet in it, the put decides."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    store.delete(keys(store))
    slow = BlockingStore(store, stops=lambda action, key: action == "put")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(hold, slow, life)
        assert slow.arrived.wait(10)
        other = claim(store, "gpt", identity=IDENTITY)
        slow.go.set()
        with pytest.raises(Superseded, match="another owner"):
            late.result(10)
    assert is_newest(store, other)


def test_an_altered_claim_does_not_end_a_life() -> None:
    """Rubbish in the place of our claim is nobody's: it is an error with a way out, not a newer life."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    store.put(layout.life("gpt", 1), b"rubbish")
    with pytest.raises(StoreError, match="is altered") as caught:
        hold(store, life)
    assert "remove gpt/lives/000001.json" in caught.value.hint
    store.delete([layout.life("gpt", 1)])
    assert hold(store, life)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    "trace",
    [
        layout.manifest("gpt", CheckpointId(7, 1)),
        layout.chunk("gpt", CheckpointId(7, 1), blake3="0" * 64),
        layout.part("gpt", CheckpointId(7, 1), rank=0, world=2),
        layout.adopted("gpt", 7),
        layout.history("gpt", 7, sequence=3, event="ended"),
    ],
)
def test_a_claim_is_above_everything_that_an_earlier_life_left(kind: type[MemoryStore], trace: str) -> None:
    """Where claims were removed, what their lives have written still counts: no number comes twice."""
    store = kind()
    store.put(layout.life("gpt", 3), b"{}")
    store.put(trace, b"{}")
    store.put("gpt/checkpoints/readme.txt", b"")
    store.put("gpt/history/999999", b"")
    assert claim(store, "gpt", identity=IDENTITY).number == 8


def test_a_rubbish_claim_is_still_a_number_that_is_taken() -> None:
    """A claim that can't be read is counted past; its number is never given again."""
    store = MemoryStore()
    store.put(layout.life("gpt", 4), b"rubbish")
    store.put("gpt/lives/000009.json.bak", b"")
    assert claim(store, "gpt", identity=IDENTITY).number == 5
    with pytest.raises(Damaged):
        read_claim(store, "gpt", 4)
    with pytest.raises(NotFound):
        read_claim(store, "gpt", 3)


def test_numbers_end() -> None:
    """The last number that a key can hold is not passed silently."""
    store = MemoryStore()
    store.put(layout.life("gpt", MAX_LIFE), b"{}")
    with pytest.raises(StoreError, match="used up") as caught:
        claim(store, "gpt", identity=IDENTITY)
    assert "new run name" in caught.value.hint


def test_a_bad_run_name_is_refused_before_anything_is_written() -> None:
    """Nothing reaches the store under a name that is none."""
    store = MemoryStore()
    with pytest.raises(ConfigError):
        claim(store, "../x", identity=IDENTITY)
    assert keys(store) == []


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("failure", ["killed before", "killed after", "refused", "answer lost"])
def test_a_claim_that_dies_anywhere_leaves_the_next_one_free(kind: type[MemoryStore], failure: str) -> None:
    """Whichever request of a claim is the last, the next machine gets a number of its own."""
    for at in range(20):
        store = kind()
        first = claim(store, "gpt", identity=IDENTITY)
        failing = FailingStore(store, at=at, failure=failure)  # type: ignore[arg-type]
        try:
            claim(failing, "gpt", identity=IDENTITY)
        except Unavailable:
            pass
        except BaseException as error:
            if not failure.startswith("killed") or not type(error).__name__ == "Killed":
                raise
        after = claim(store, "gpt", identity=IDENTITY)
        assert after.number > first.number
        assert is_newest(store, after)
        if not failing.met:
            return
    raise AssertionError("the claim never ended")


def test_what_a_life_resumed_from_is_read_back() -> None:
    """Adoptions and rewinds are recorded once each and told apart."""
    store = MemoryStore()
    first = begin(store)
    assert read_adoption(store, "gpt", 1) is not None
    second = claim(store, "gpt", identity=IDENTITY)
    assert read_adoption(store, "gpt", 2) is None
    adopt(store, second, CheckpointId(1, 5), rewind=True)
    adopt(store, second, CheckpointId(1, 5), rewind=True)  # a repeated request is no error
    found = read_adoption(store, "gpt", 2)
    assert found is not None
    assert (found.checkpoint, found.rewind, found.nonce) == (CheckpointId(1, 5), True, second.nonce)
    with pytest.raises(StoreError, match="something else"):
        adopt(store, second, CheckpointId(1, 4), rewind=True)
    with pytest.raises(Superseded, match="can't resume"):
        adopt(store, first.life, CheckpointId(1, 4))


def test_an_adoption_of_the_future_is_damaged() -> None:
    """A record that sends a life to a later one can't lead a reader in a circle."""
    store = MemoryStore()
    life = claim(store, "gpt", identity=IDENTITY)
    adopt(store, later_life(life), CheckpointId(1, 5), rewind=True)
    body = store.get(layout.adopted("gpt", 2, rewind=True), at_most=9999)
    store.put(layout.adopted("gpt", 1, rewind=True), body.replace(b'"life":2', b'"life":1'))
    with pytest.raises(Damaged):
        read_adoption(store, "gpt", 1)


def test_this_process_can_be_told() -> None:
    """The identity holds what a person needs to find the machine, whatever its words are made of."""
    me = Identity.here(["train.py", "\udcff" * 5000, *("x" * 100,) * 100])
    store = MemoryStore()
    claim(store, "gpt", identity=me)
    found = read_claim(store, "gpt", 1).identity
    assert (found.host, found.pid) == (me.host, me.pid)
    assert found.command[0] == "train.py"
    assert len(found.command) == 64
