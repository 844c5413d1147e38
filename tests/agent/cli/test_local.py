"""``outlive status`` and ``reclaim``."""

import os
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from fakes.checkpoints import begin
from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive.store.requests import read_requests
from outlive_agent import status
from outlive_agent.units import iso_text


def write(directory: Path, **changes: object) -> status.Status:
    """The status file of an agent that lives: this very process."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc)
    members: dict[str, object] = {
        "pid": os.getpid(),
        "mode": "exec",
        "run": "gpt",
        "store": "/data/outlive",
        "phase": "saving",
        "started_at": iso_text(now - timedelta(hours=2)),
        "written_at": iso_text(now),
        "life": 3,
        "trainer_pid": 4711,
        "step": 1204,
        "epoch": 2,
        "step_seconds": 0.31,
        "resumed_from": (2, 1100),
        "saved_step": 1200,
        "saved_at": iso_text(now - timedelta(seconds=12)),
        "saved_bytes": 14_200_000,
        "saved_seconds": 0.8,
        "sending_step": 1204,
        "sent_bytes": 7_100_000,
        "sending_bytes": 14_200_000,
        "interval": "every 200 steps",
        **changes,
    }
    made = status.Status(**members)  # type: ignore[arg-type]  # a table of members, checked by reading it back
    status.write(directory, made)
    return made


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_no_agent_is_no_error(cli: Cli) -> None:
    """Where nothing runs, status says so and how to begin."""
    said = cli("status")
    assert (said.code, said.out) == (
        0,
        "No agent is running here. Begin with: outlive exec -- python train.py\n",
    )
    assert cli("status", "--json").json == {"agents": []}


def test_status_tells_what_an_agent_does(cli: Cli, place: Path) -> None:
    """What it does, what is safe, what is under way, and since when."""
    made = write(place / "runtime" / "outlive" / "gpt-1")
    out = cli("status").out
    assert out.splitlines()[0] == "gpt, life 3, is saving"
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()[1:]}
    assert told["step"] == "1,204 of epoch 2, 310 ms a step"
    assert told["saved"].startswith("step 1,200, 14.2 MB in 800 ms, ")
    assert told["saved"].endswith("s ago; every 200 steps")
    assert told["sending"] == "step 1,204, 7.1 MB of 14.2 MB (50 %)"
    assert told["resumed"] == "from step 1,100 of life 2"
    assert told["agent"].startswith(f"exec, pid {os.getpid()}, trains as pid 4711, since ")
    assert told["agent"].endswith("UTC, 2 h ago")
    answer = cli("status", "gpt", "--json").json["agents"][0]
    assert answer["alive"] is True
    assert answer["resumed_from"] == [2, 1100]
    assert answer["saved_at"] == made.saved_at


def test_status_tells_of_trouble(cli: Cli, place: Path) -> None:
    """A notice with its deadline, a failing save, and an agent that no longer speaks are in plain sight."""
    now = datetime.now(timezone.utc)
    write(
        place / "daemon",
        notice="inbox",
        deadline=iso_text(now + timedelta(hours=1, seconds=30)),
        problem="s3://bucket: SlowDown",
        written_at=iso_text(now - timedelta(minutes=5)),
    )
    out = cli("status").out
    assert "UTC, in 1 h" in out
    assert "s3://bucket: SlowDown" in out
    assert "5 min ago" in out


def test_an_agent_that_was_killed_is_not_said_to_run(cli: Cli, place: Path) -> None:
    """A status file outlives its agent; then the answer is when it was last seen, and what is safe."""
    root = place / "runtime" / "outlive"
    write(root / "a", pid=dead_pid(), trainer_pid=None)
    lines = cli("status").out.splitlines()
    assert lines[0] == "gpt, life 3, is gone without a word: its agent was killed"
    assert lines[1].startswith("  last seen  20")
    assert lines[2] == "  reached    step 1,204, step 1,200 is saved"
    assert [agent["alive"] for agent in cli("status", "--json").json["agents"]] == [False]
    write(root / "b", trainer_pid=None)
    assert "gone" not in cli("status").out
    assert not (root / "a").exists()


def test_what_nobody_needs_is_swept_away(cli: Cli, place: Path) -> None:
    """Of dead agents the last word of each run is told for a day, as long as nobody goes on with it."""
    root = place / "runtime" / "outlive"
    dead = dead_pid()
    write(root / "ended", pid=dead, run="done", phase="ended", trainer_pid=None)
    write(root / "older", pid=dead, written_at="2026-11-30T00:00:00.000Z", trainer_pid=None)
    write(root / "old", pid=dead, run="old", trainer_pid=None)
    os.utime(root / "old" / "status.json", (1, 1))
    write(root / "trains", pid=dead, run="trains", trainer_pid=os.getpid())
    write(root / "newest", pid=dead, trainer_pid=None)
    out = cli("status").out
    assert sorted(path.name for path in root.iterdir()) == ["newest", "trains"]
    assert f"pid {os.getpid()} still runs" in out
    assert out.count("gone without a word") == 2


def test_a_number_that_passed_to_a_stranger(cli: Cli, place: Path) -> None:
    """A process that began after an agent's last word is not that agent."""
    write(place / "runtime" / "outlive" / "a", trainer_pid=None)
    moment = time.time() - 3600
    os.utime(place / "runtime" / "outlive" / "a" / "status.json", (moment, moment))
    assert cli("status", "--json").json["agents"][0]["alive"] is False


def test_status_of_one_run(cli: Cli, place: Path) -> None:
    """Only the run that was asked for is shown, the daemon's before those started by hand."""
    write(place / "daemon", run="served")
    write(place / "runtime" / "outlive" / "a", run="tried")
    assert [agent["run"] for agent in cli("status", "--json").json["agents"]] == ["served", "tried"]
    assert "served" not in cli("status", "tried").out
    assert cli("status", "other").out.startswith("No agent of other is running here.")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"format": "outlive/status", "version": 2}',
        '{"format": "outlive/status", "version": 1, "pid": "1"}',
        '{"format": "outlive/status", "version": 1, "pid": 1, "mode": "exec", "run": 7}',
    ],
)
def test_a_status_file_that_is_none_is_passed_over(cli: Cli, place: Path, content: str) -> None:
    """Whatever lies in the directory, status answers about the agents that it understands."""
    for name in ("a", "b"):
        (place / "runtime" / "outlive" / name).mkdir(parents=True)
    (place / "runtime" / "outlive" / "a" / "status.json").write_text(content)
    write(place / "runtime" / "outlive" / "b")
    assert len(cli("status", "--json").json["agents"]) == 1


def test_a_status_of_impossible_members_is_passed_over(tmp_path: Path) -> None:
    """A member of the wrong type makes the file useless: better no answer than a wrong one."""
    for changes in ({"pid": 0}, {"pid": 1 << 40}, {"step": -1}, {"step": True}, {"resumed_from": (1, 2, 3)}):
        write(tmp_path, **changes)
        assert status.read(tmp_path / "status.json") is None
    assert write(tmp_path) == status.read(tmp_path / "status.json")


def test_reclaim_asks_the_present_life(cli: Cli, store: ObjectStore) -> None:
    """The request is meant for the life that holds the run now, its deadline is of the store's clock."""
    begin(store)
    said = cli("reclaim", "gpt", "--in", "2h")
    assert said.code == 0
    assert said.out.startswith("Asked life 1 of gpt to save and stop: its machine goes away in 2 h.\n")
    [request] = read_requests(store, "gpt")
    assert (request.kind, request.life) == ("reclaim", 1)
    assert request.deadline is not None
    assert abs(request.deadline - request.asked_at - timedelta(hours=2)) < timedelta(seconds=10)
    assert "@" in request.by
    answer = cli("reclaim", "gpt", "--in", "now", "--json").json
    assert (answer["run"], answer["life"], answer["kind"]) == ("gpt", 1, "reclaim")
    assert len(read_requests(store, "gpt")) == 2


def test_reclaim_says_when_nobody_may_hear_it(cli: Cli, gpt: ObjectStore) -> None:
    """A life that has ended can't be reclaimed; whoever asks learns that at once."""
    assert "that life has ended (failed)" in cli("reclaim", "gpt", "--in", "5 min").out


def test_reclaim_of_no_run(cli: Cli, gpt: ObjectStore) -> None:
    """A mistyped run gets no request."""
    said = cli("reclaim", "gtp", "--in", "5 min")
    assert said.code == 1
    assert "did you mean gpt?" in said.err
    assert list(gpt.list("gtp/")) == []


@pytest.mark.parametrize("span", ["5", "0s", "soon", ""])
def test_reclaim_needs_a_time_span(cli: Cli, gpt: ObjectStore, span: str) -> None:
    """A time span without sense is a mistake in the command line."""
    said = cli("reclaim", "gpt", "--in", span)
    assert said.code == 2
    assert "such as 30s" in said.err
