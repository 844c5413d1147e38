"""Several ranks under the real torchrun: one checkpoint of all, and each goes on exactly where it was."""

import os
import signal
from dataclasses import replace
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
    ways = {"ddp": 2, "fsdp": 2, "tensor": 2, "hsdp": 4, "tp": 4}
    return {
        way: Place(folder=tmp_path_factory.mktemp(way), warm=warm).finish("one", "--way", way, ranks=ranks)
        for way, ranks in ways.items()
    }


@pytest.mark.parametrize(("way", "how"), [("ddp", "agent"), ("fsdp", "group")])
def test_ranks_that_are_told_to_stop_go_on_exactly(
    tmp_path: Path, untouched: dict[str, Ends], way: str, how: str
) -> None:
    """SIGTERM to the agent, or to everyone at once, data workers too: all ranks save the same step,
    and the next life ends as the run that nobody touched, each rank with its own data and its own chance."""
    place = Place(folder=tmp_path)
    script = ["--way", way, "--pause", "0.05", "--workers", "2" if how == "group" else "0"]
    first = place.start("first", *script, torchrun=("--max-restarts", "3"))
    first.wait_for(r"saved step 1\d ")
    if how == "agent":
        first.process.send_signal(signal.SIGTERM)
        assert first.end() == 75, first.text
        assert "ChildFailedError" not in first.text
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


@pytest.mark.parametrize(("way", "ranks"), [("ddp", 2), ("fsdp", 2), ("tensor", 2), ("hsdp", 4), ("tp", 4)])
def test_ranks_that_are_killed_go_on_exactly(
    place: Place, untouched: dict[str, Ends], way: str, ranks: int
) -> None:
    """After a SIGKILL to all of them, the last checkpoint is where every rank goes on, however they share."""
    first = place.start("first", "--way", way, "--pause", "0.05", ranks=ranks)
    first.wait_for(r"saved step 1\d ")
    first.signal_all(signal.SIGKILL)
    first.end()
    assert place.finish("second", "--way", way, ranks=ranks) == untouched[way]


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_large_pieces_are_copied_beside_the_training(place: Place, way: str) -> None:
    """Where a rank's piece is worth a thread it is copied during the next step, and is of its boundary."""
    script = ["--way", way, "--width", "200000", "--epochs", "1"]
    first = place.start("first", *script, "--pause", "0.05")
    first.wait_for(r"(?s)saved step.*saved step.*saved step")
    first.signal_all(signal.SIGKILL)
    first.end()
    ends = place.finish("second", *script)
    assert ends == replace(place, run="untouched").finish("third", *script)


def test_a_rank_that_dies_is_started_again_by_torchrun(place: Place, untouched: dict[str, Ends]) -> None:
    """torchrun's own restart after the SIGKILL of one rank resumes all of them from the last checkpoint."""
    started = place.start("first", "--pause", "0.05", torchrun=("--standalone", "--max-restarts", "3"))
    started.wait_for(r"saved step 1\d ")
    os.kill(started.ranks()[-1], signal.SIGKILL)
    assert started.end() == 0, started.text
    assert started.ends() == untouched["ddp"]


def test_other_numbers_of_ranks_and_other_ways_restore_the_same_values(place: Place) -> None:
    """What some ranks saved as shards is put together by any number of them, sharded, replicated or whole."""
    interrupted(place, "fsdp", ranks=4)
    shapes = [("fsdp", 4), ("fsdp", 2), ("plain", 1), ("ddp", 2), ("hsdp", 4), ("tp", 4)]
    looks = {shape: look(place, *shape) for shape in shapes}
    assert len(set(looks.values())) == 1, looks
    for before, now in [(2, 3), (3, 1)]:
        interrupted(place, "fsdp", ranks=before)
        assert look(place, "fsdp", before) == look(place, "fsdp", now)


def test_ranks_that_are_more_than_before_say_what_is_not_exact(place: Place) -> None:
    """The data is dealt out anew from where it was, and a line says so; a new rank draws its own numbers."""
    interrupted(place, "ddp", ranks=2)
    started = place.start("four", "--way", "ddp", ranks=4)
    assert started.end() == 0, started.text
    assert "may not be bit-exact: saved by 2 ranks, and here are 4" in started.text
    ends = started.ends()
    seen = {end["seen"] for end in ends.values()}
    assert len({end["chance"] for end in ends.values()}) == 4
    assert len(seen) == 1
    assert {end["steps"] for end in ends.values()} == {ends[0]["steps"]}
    assert ends[0]["steps"] < 80  # four ranks need half as many steps for what is left


def interrupted(place: Place, way: str, *, ranks: int) -> None:
    """A training that goes on for ten steps or more, and is killed with all its ranks."""
    name = f"{way}-{ranks}-killed"
    started = place.start(name, "--way", way, "--pause", "0.05", ranks=ranks)
    started.wait_for(r"(?s)saved step.*saved step")
    started.signal_all(signal.SIGKILL)
    started.end()


def look(place: Place, way: str, ranks: int) -> tuple[int, str]:
    """What so many ranks restore: the step, and a digest of all that they hold together."""
    ends = place.finish(f"{way}-{ranks}-look", "--look", "--way", way, ranks=ranks)
    found = {(end["steps"], end["state"]) for end in ends.values()}
    assert len(found) == 1
    return found.pop()
