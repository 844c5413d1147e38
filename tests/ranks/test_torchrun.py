"""Several ranks under the real torchrun: one checkpoint of all, and each goes on exactly where it was."""

import os
import signal
from pathlib import Path

import pytest

from outlive.objects.location import open_store
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify
from ranks.starting import Place, kill_all


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, object]]:
    """How the ranks end that nobody disturbs."""
    return Place(folder=tmp_path_factory.mktemp("untouched")).finish("one")


@pytest.mark.parametrize("how", ["agent", "group", "killed"])
def test_ranks_go_on_exactly(tmp_path: Path, untouched: dict[int, dict[str, object]], how: str) -> None:
    """SIGTERM to the agent, SIGTERM to everyone at once, SIGKILL to everyone: the next life ends as the run
    that nobody touched, each rank with its own data and its own chance."""
    place = Place(folder=tmp_path)
    first = place.start("first", "--pause", "0.05")
    first.wait_for(r"saved step 1\d ")
    if how == "agent":
        first.process.send_signal(signal.SIGTERM)
        assert first.end() == 75, first.text
        first.wait_for(r"saved step \d+ \(signal")
    else:
        kill_all(first, signal.SIGTERM if how == "group" else signal.SIGKILL)
        first.end()
    if how == "group":
        first.wait_for(r"stopped and is saved")
    store = open_store(str(place.store))
    newest = read_manifest(store, place.run, checkpoints(store, place.run)[0])
    assert [(part.rank, part.world) for part in newest.parts] == [(0, 2), (1, 2)]
    assert verify(store, newest).ok
    assert place.finish("second") == untouched


def test_a_rank_that_dies_is_started_again_by_torchrun(
    tmp_path: Path, untouched: dict[int, dict[str, object]]
) -> None:
    """torchrun's own restart after the SIGKILL of one rank resumes all of them from the last checkpoint."""
    place = Place(folder=tmp_path)
    started = place.start("first", "--pause", "0.05", torchrun=("--max-restarts", "3"))
    started.wait_for(r"saved step 1\d ")
    os.kill(started.ranks()[-1], signal.SIGKILL)
    assert started.end() == 0, started.text
    assert started.ends() == untouched
