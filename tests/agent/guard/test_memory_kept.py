"""What was accepted survives agent and training: systemd keeps the memory for the next agent."""

import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from fakes.agents import TRAINER, Exec, Machine, kill
from fakes.systemd import Systemd
from outlive_agent.exits import Exit


def _agent(machine: Machine, systemd: Systemd, *, every: str = "10 steps") -> Exec:
    """As systemd starts it: with what was kept for it."""
    config = machine.directory / "outlive.yaml"
    config.write_text(f"run: t\nstore: {{location: {machine.store}}}\nsave: {{every: {every}}}\n")
    runtime = machine.directory / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    command, fds = systemd.starting([sys.executable, "-m", "outlive_agent", "agent", "--config", str(config)])
    environ = {"NOTIFY_SOCKET": str(machine.directory / "notify.sock"), "RUNTIME_DIRECTORY": str(runtime)}
    return machine.start(command, environ=environ, fds=fds)


def _train(machine: Machine, *arguments: str) -> Exec:
    environ = {"OUTLIVE_SOCKET": str(machine.directory / "run" / "agent.sock")}
    return machine.start([*TRAINER, *arguments], environ=environ)


class OnADisk(Machine):
    """Its store lies on a disk that may not be mounted."""

    @property
    def store(self) -> Path:
        return self.directory / "disk" / "store"


class Outage:
    """Manifests can't be written, from `begin` to `end`."""

    def __init__(self, machine: Machine) -> None:
        self._manifests = machine.store / "t" / "checkpoints"
        self._elsewhere = machine.directory / "elsewhere"

    def begin(self) -> None:
        shutil.move(self._manifests, self._elsewhere)
        self._manifests.write_text("a file where a directory must be")

    def end(self) -> None:
        self._manifests.unlink()
        shutil.move(self._elsewhere, self._manifests)


def _left_behind(machine: Machine, systemd: Systemd, *, killed: bool = True) -> int:
    """A training that has stopped, and an agent that was killed, or gave up, before that step was saved."""
    agent = _agent(machine, systemd)
    systemd.wait_for("READY=1")
    log = machine.directory / "log"
    run = _train(machine, "--steps", "100000", "--log", str(log))
    agent.wait_line("saved step 10 ")
    outage = Outage(machine)
    outage.begin()
    run.signal(signal.SIGTERM)
    assert run.exit_code() == 75, run.text
    agent.wait_line("was not saved")
    if killed:
        kill(agent.process.pid)
    assert agent.exit_code() == (-signal.SIGKILL if killed else Exit.SAVE_FAILED), agent.text
    outage.end()
    return int(log.read_text().split()[-1])


def test_snapshot_outlives_agent_and_training(machine: Machine, systemd: Systemd) -> None:
    """A last snapshot whose training ended and whose agent was killed becomes a checkpoint of its life."""
    step = _left_behind(machine, systemd)
    assert (1, step) not in machine.checkpoints()
    agent = _agent(machine, systemd)
    agent.wait_line(f"found step {step:,} in memory, left by the agent that died: saving it now")
    agent.wait_line(f"saved step {step:,} .signal")
    assert (1, step) == machine.checkpoints()[-1]
    run = _train(machine, "--steps", str(step + 5))
    run.wait_line(f"^restored {step} from memory$")
    assert run.exit_code() == 0, run.text
    assert agent.exit_code() == Exit.FINISHED, agent.text
    assert {} == systemd.stored
    assert (1, step + 5) == machine.checkpoints()[-1]
    assert ["found"] == [event["event"] for event in machine.events(1) if event["event"] == "found"]


def test_snapshot_is_saved_though_nobody_trains_any_more(machine: Machine, systemd: Systemd) -> None:
    """An agent that is stopped before any training came saves first what it found."""
    step = _left_behind(machine, systemd)
    agent = _agent(machine, systemd)
    systemd.wait_for("READY=1", count=2)
    agent.signal(signal.SIGTERM)
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert (1, step) == machine.checkpoints()[-1]
    assert {} == systemd.stored


def test_memory_waits_for_a_store_that_is_away(machine: Machine, systemd: Systemd) -> None:
    """Not even a stop ends an agent that holds what nobody has saved, while the store can't be asked."""
    machine = OnADisk(machine.directory, machine.started)
    machine.store.parent.mkdir()
    step = _left_behind(machine, systemd)
    shutil.move(machine.store.parent, machine.directory / "unmounted")
    agent = _agent(machine, systemd)
    agent.wait_line("warning: waiting for the store: ")
    agent.signal(signal.SIGTERM)
    agent.wait_line("SIGTERM: saving and stopping")
    systemd.wait_for("STOPPING=1")
    shutil.move(machine.directory / "unmounted", machine.store.parent)
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert (1, step) == machine.checkpoints()[-1]
    assert {} == systemd.stored


def test_last_save_that_failed_is_the_next_agents(machine: Machine, systemd: Systemd) -> None:
    """An agent that had to give its last save up leaves it to the next one, which goes on with the life."""
    step = _left_behind(machine, systemd, killed=False)
    agent = _agent(machine, systemd)
    agent.wait_line(f"found step {step:,} in memory")
    agent.wait_line(f"saved step {step:,} ")
    assert (1, step) == machine.checkpoints()[-1]


def test_training_restarts_from_memory_after_both_were_killed(machine: Machine, systemd: Systemd) -> None:
    """The newest state is still there for a training that starts again, saved or not, without the network."""
    agent = _agent(machine, systemd)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100000")
    agent.wait_line("saved step 10 ")
    kill(run.process.pid)
    agent.wait_line("the training ended at step")
    kill(agent.process.pid)
    agent.exit_code()
    again = _agent(machine, systemd)
    step = again.wait_line("found step .* in memory, left by the agent that died").split()[3]
    second = _train(machine, "--steps", str(int(step) + 10))
    second.wait_line(f"^restored {step} from memory$")
    assert second.exit_code() == 0, second.text
    assert again.exit_code() == Exit.FINISHED, again.text
    assert {} == systemd.stored


def test_half_copied_memory_is_left_alone(machine: Machine, systemd: Systemd) -> None:
    """A training that died as it copied over the only state in memory: the next goes on from the store."""
    agent = _agent(machine, systemd)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100", "--die-copying", "30", "--pause", "0.05")
    assert run.exit_code() == -signal.SIGKILL
    agent.wait_line("the training ended at step 30")
    kill(agent.process.pid)
    agent.exit_code()
    again = _agent(machine, systemd)
    again.wait_line("no use: step .* of life 1: a newer state was being copied over it")
    second = _train(machine, "--steps", "40")
    second.wait_line(f"^restored .* from {machine.store}$")
    assert second.exit_code() == 0, second.text
    assert again.exit_code() == Exit.FINISHED, again.text


def test_memory_that_is_older_than_the_store(machine: Machine, systemd: Systemd) -> None:
    """What another agent has saved meanwhile for the same life counts more than what lies in memory."""
    step = _left_behind(machine, systemd)
    newest = machine.store / "t" / "checkpoints" / f"000001-{10:012}.json"
    later = json.loads(newest.read_bytes())
    later["step"] = step + 1
    (newest.parent / f"000001-{step + 1:012}.json").write_text(json.dumps(later))
    agent = _agent(machine, systemd)
    agent.wait_line(f"step {step:,} lies in memory, and is older than what is saved")
    agent.signal(signal.SIGTERM)
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert (1, step) not in machine.checkpoints()
    assert {} == systemd.stored


def test_life_that_goes_on_elsewhere(machine: Machine, systemd: Systemd) -> None:
    """Where another machine has the run by now, nothing is saved any more, and the agent says so."""
    step = _left_behind(machine, systemd)
    assert machine.exec("--steps", "12").exit_code() == Exit.FINISHED
    agent = _agent(machine, systemd)
    assert agent.exit_code() == Exit.SUPERSEDED, agent.text
    assert "superseded by life 2" in agent.text
    assert (1, step) not in machine.checkpoints()
    assert {} == systemd.stored


def test_strange_descriptors(machine: Machine, systemd: Systemd) -> None:
    """Whatever an agent is handed, it begins as if there were nothing, and lets go of it all."""
    one, other = socket.socketpair()
    unsealed = os.memfd_create("x")
    os.write(unsealed, b"{}\n{}\n")
    names = ("state-1", "state-2", "arena-3", "stored", "state-5")
    fds = [one.detach(), unsealed, os.open("/dev/null", os.O_RDWR), os.dup(0), os.open("/", os.O_RDONLY)]
    systemd.stored.update(zip(names, fds, strict=True))
    agent = _agent(machine, systemd)
    agent.wait_line("left in memory is no use: ", count=3)
    run = _train(machine, "--steps", "20")
    run.wait_line("^fresh$")
    assert run.exit_code() == 0, run.text
    assert agent.exit_code() == Exit.FINISHED, agent.text
    other.close()
    assert {} == systemd.stored
