"""``outlive agent`` as systemd runs it: what it is told, and what it tells."""

import signal
import sys

from fakes.agents import TRAINER, Exec, Machine
from fakes.systemd import Systemd
from outlive_agent.exits import Exit


def _agent(machine: Machine) -> Exec:
    config = machine.directory / "outlive.yaml"
    config.write_text(f"run: t\nstore: {{location: {machine.store}}}\nsave: {{every: 10 steps}}\n")
    runtime = machine.directory / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return machine.start(
        [sys.executable, "-m", "outlive_agent", "agent", "--config", str(config)],
        environ={
            "NOTIFY_SOCKET": str(machine.directory / "notify.sock"),
            "RUNTIME_DIRECTORY": str(runtime),
            "WATCHDOG_USEC": "300000",
        },
    )


def _train(machine: Machine, *arguments: str) -> Exec:
    environ = {"OUTLIVE_SOCKET": str(machine.directory / "run" / "agent.sock")}
    return machine.start([*TRAINER, *arguments], environ=environ)


def test_ready_alive_and_stopping(machine: Machine, systemd: Systemd) -> None:
    """systemd hears that the agent is ready, alive all the time, and needs more time for its end."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100000")
    agent.wait_line("saved step 10 ")
    systemd.wait_for("WATCHDOG=1", count=5)
    systemd.wait_for("STATUS=")
    agent.signal(signal.SIGTERM)
    systemd.wait_for("STOPPING=1")
    systemd.wait_for("EXTEND_TIMEOUT_USEC=")
    assert run.exit_code() == 75, run.text
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_training_is_stopped_first(machine: Machine, systemd: Systemd) -> None:
    """When systemd stops the training, the agent saves its last step and ends by itself."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100000")
    agent.wait_line("saved step 10 ")
    run.signal(signal.SIGTERM)
    assert run.exit_code() == 75, run.text
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_training_restarted_by_systemd(machine: Machine, systemd: Systemd) -> None:
    """A training that crashed and is started again goes on from the agent's memory, in the same life."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    first = _train(machine, "--steps", "100", "--die-at", "25")
    assert first.exit_code() == -signal.SIGKILL
    second = _train(machine, "--steps", "30")
    second.wait_line("^restored 20 from memory$")
    assert second.exit_code() == 0, second.text
    assert agent.exit_code() == Exit.FINISHED, agent.text
    assert machine.checkpoints()[-1] == (1, 30)


def test_training_that_ends_without_a_word(machine: Machine, systemd: Systemd) -> None:
    """Once systemd starts the training no more, the agent saves what it has, says so, and does not wait."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100", "--die-at", "25")
    run.exit_code()
    agent.signal(signal.SIGUSR2)
    assert agent.exit_code() == Exit.CONFIG, agent.text
    assert "the training has ended and is not started again" in agent.text
    assert machine.checkpoints()[-1] == (1, 20)


def test_end_that_was_told_is_no_failure(machine: Machine, systemd: Systemd) -> None:
    """systemd's word that the training is over changes nothing where the training has said so itself."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "30")
    agent.wait_line("saved step 10 ")
    agent.signal(signal.SIGUSR2)
    assert run.exit_code() == 0, run.text
    assert agent.exit_code() == Exit.FINISHED, agent.text
    assert "not started again" not in agent.text


def test_second_training_is_refused(machine: Machine, systemd: Systemd) -> None:
    """While one training is connected another one is turned away with the reason."""
    agent = _agent(machine)
    systemd.wait_for("READY=1")
    run = _train(machine, "--steps", "100000")
    run.wait_line("fresh")
    other = _train(machine, "--steps", "5")
    assert other.exit_code() == 78
    assert "refused: another training is connected" in other.text
    agent.signal(signal.SIGTERM)
    assert agent.exit_code() == Exit.RESUME, agent.text
    assert run.exit_code() == 75
