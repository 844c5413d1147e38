"""Several ranks under the real torchrun: one checkpoint of all, and each goes on exactly where it was."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from outlive.objects.location import open_store
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify
from ranks.starting import Place

Ends = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def untouched(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ends]:
    """How the ranks end that nobody disturbs."""
    ways = {"ddp": 2, "fsdp": 2, "hsdp": 4, "tp": 4}
    return {
        way: Place(folder=tmp_path_factory.mktemp(way), warm=warm).finish("one", "--way", way, ranks=ranks)
        for way, ranks in ways.items()
    }


@pytest.mark.parametrize(("way", "how"), [("ddp", "agent"), ("fsdp", "group")])
def test_ranks_that_are_told_to_stop_go_on_exactly(
    tmp_path: Path, untouched: dict[str, Ends], way: str, how: str
) -> None:
    """SIGTERM to the agent, or to everyone at once: all ranks save the same step, and the next life ends as
    the run that nobody touched, each rank with its own data and its own chance."""
    place = Place(folder=tmp_path)
    first = place.start("first", "--way", way, "--pause", "0.05")
    first.wait_for(r"saved step 1\d ")
    if how == "agent":
        first.process.send_signal(signal.SIGTERM)
        assert first.end() == 75, first.text
    else:
        first.signal_all(signal.SIGTERM)
        first.end()
    first.wait_for(r"saved step \d+ \(signal")
    first.wait_for(r"stopped and is saved")
    store = open_store(str(place.store))
    newest = read_manifest(store, place.run, checkpoints(store, place.run)[0])
    assert [(part.rank, part.world) for part in newest.parts] == [(0, 2), (1, 2)]
    assert verify(store, newest).ok
    assert place.finish("second", "--way", way) == untouched[way]


@pytest.mark.parametrize(("way", "ranks"), [("ddp", 2), ("fsdp", 2), ("hsdp", 4), ("tp", 4)])
def test_ranks_that_are_killed_go_on_exactly(
    place: Place, untouched: dict[str, Ends], way: str, ranks: int
) -> None:
    """After a SIGKILL to all of them, the last checkpoint is where every rank goes on, however they share."""
    first = place.start("first", "--way", way, "--pause", "0.05", ranks=ranks)
    first.wait_for(r"saved step 1\d ")
    first.signal_all(signal.SIGKILL)
    first.end()
    assert place.finish("second", "--way", way, ranks=ranks) == untouched[way]


def test_a_rank_that_dies_is_started_again_by_torchrun(place: Place, untouched: dict[str, Ends]) -> None:
    """torchrun's own restart after the SIGKILL of one rank resumes all of them from the last checkpoint."""
    started = place.start("first", "--pause", "0.05", torchrun=("--standalone", "--max-restarts", "3"))
    started.wait_for(r"saved step 1\d ")
    os.kill(started.ranks()[-1], signal.SIGKILL)
    assert started.end() == 0, started.text
    assert started.ends() == untouched["ddp"]


def test_other_numbers_of_ranks_and_other_ways_restore_the_same_values(place: Place) -> None:
    """What four ranks saved as shards is put together by any number of them, sharded, replicated or whole."""
    first = place.start("first", "--way", "fsdp", "--pause", "0.05", ranks=4)
    first.wait_for(r"saved step 1\d ")
    first.signal_all(signal.SIGKILL)
    first.end()
    shapes = [("fsdp", 4), ("fsdp", 2), ("fsdp", 3), ("plain", 1), ("ddp", 2), ("hsdp", 4), ("tp", 4)]
    seen = {(way, n): place.finish(f"{way}-{n}", "--look", "--way", way, ranks=n) for way, n in shapes}
    states = {end["state"] for ends in seen.values() for end in ends.values()}
    steps = {end["steps"] for ends in seen.values() for end in ends.values()}
    assert len(states) == 1
    assert steps.pop() >= 10
