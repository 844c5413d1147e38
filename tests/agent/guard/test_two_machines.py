"""Two agents with one run at once, and reclaims that are announced."""

import signal
import subprocess
import sys

import pytest

from fakes.agents import Machine
from outlive.objects.local import LocalStore
from outlive.store.requests import put_request
from outlive_agent.exits import Exit


def test_older_life_stops(machine: Machine) -> None:
    """The older of two agents stops with its own code and deletes nothing; the history tells both stories."""
    older = machine.exec("--steps", "100000")
    older.wait_line("saved step 10 ")
    newer = machine.exec("--steps", "100000", environ={"XDG_RUNTIME_DIR": str(machine.directory / "other")})
    newer.wait_line("life 2 of t begins")
    assert older.exit_code() == Exit.SUPERSEDED, older.text
    newer.wait_line("saved step")
    newer.signal(signal.SIGTERM)
    assert newer.exit_code() == Exit.RESUME, newer.text
    first, second = machine.events(1), machine.events(2)
    assert [event["event"] for event in first][-2:] == ["superseded", "ended"]
    assert first[-1]["outcome"] == "superseded"
    assert second[-1]["outcome"] == "stopped"
    assert machine.checkpoints()[-1][0] == 2


def test_second_start_on_one_machine(machine: Machine) -> None:
    """Who starts a run that trains here already is refused, and the run goes on as if nothing had been."""
    run = machine.exec("--steps", "100000")
    run.wait_line("saved step 10 ")
    slip = machine.exec("--steps", "100000")
    assert slip.exit_code() == Exit.CONFIG, slip.text
    assert f"run t is being trained on this machine already, by process {run.process.pid}" in slip.text
    other = machine.exec("--steps", "10", options=("--run", "another"))
    assert other.exit_code() == Exit.FINISHED, other.text
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    assert machine.events(1)[-1]["steps_lost"] == 0
    assert [life for life, _ in machine.checkpoints()] == [1] * len(machine.checkpoints())


@pytest.mark.parametrize("asked", ["inbox", "flag"])
def test_notice(machine: Machine, asked: str) -> None:
    """A reclaim that is announced ends with a save of the last step, and the next life does not act on it."""
    flag = machine.directory / "reclaimed"
    config = machine.directory / "outlive.yaml"
    config.write_text(f"save: {{every: 1h}}\nreclaim: {{flag_file: {flag}}}\n")
    options = ("--config", str(config))
    run = machine.exec("--steps", "100000", options=options)
    run.wait_line("training: step")
    if asked == "flag":
        flag.write_text("5s\n")
    else:
        reclaim = [sys.executable, "-m", "outlive_agent", "reclaim", "t", "--store", str(machine.store)]
        subprocess.run([*reclaim, "--in", "5s"], check=True, env=machine.environ(), capture_output=True)
    run.wait_line("reclaim announced by")
    run.wait_line("saved step .*notice")
    assert run.exit_code() == Exit.RESUME, run.text
    events = {event["event"]: event for event in machine.events(1)}
    assert 0 < events["notice"]["seconds_left"] <= 5
    assert events["plan"]["fits"] is not False
    assert events["ended"]["steps_lost"] == 0
    assert not flag.exists()
    assert list((machine.store / "t" / "inbox").glob("*.json")) == []
    again = machine.exec("--steps", str(events["ended"]["step"] + 100), options=options)
    assert again.exit_code() == Exit.FINISHED, again.text


def test_request_to_save(machine: Machine) -> None:
    """A request to save is a save, and training goes on."""
    run = machine.exec("--steps", "100000", options=("--every", "1h"))
    run.wait_line("training: step")
    put_request(LocalStore(machine.store), "t", "save", life=1)
    run.wait_line("saved step .*notice")
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text


def test_request_for_another_life(machine: Machine) -> None:
    """What was asked of one machine does not stop the next one."""
    store = LocalStore(machine.store)
    first = machine.exec("--steps", "3")
    assert first.exit_code() == Exit.FINISHED
    put_request(store, "t", "reclaim", life=1, deadline=store.now())
    put_request(store, "t", "reclaim", life=None, deadline=store.now())
    second = machine.exec("--steps", "300")
    assert second.exit_code() == Exit.FINISHED, second.text
    assert "reclaim announced" not in second.text
