"""The real agent with a training, pointed at the emulator: heard, acted on once, called off."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.agents import TRAINER, Exec, Machine, wait_until
from outlive_agent.emulate.faults import parse_fault
from outlive_agent.emulate.server import Emulator
from outlive_agent.exits import Exit


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A store and a runtime directory whose path is short."""
    machine = Machine(tmp_path_factory.mktemp("m"))
    try:
        yield machine
    finally:
        machine.clean_up()


def _exec(machine: Machine, emulator: Emulator, **more: str) -> Exec:
    environ = {"OUTLIVE_PROVIDER": emulator.provider, "OUTLIVE_METADATA_ENDPOINT": emulator.url, **more}
    return machine.exec("--steps", "100000", options=("--every", "1h"), environ=environ)


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure", "alibaba", "tencent", "byteplus"])
def test_reclaim_saves_and_stops(machine: Machine, provider: str) -> None:
    """A reclaim that is announced ends the training with nothing lost, whoever announces it."""
    with Emulator(provider) as emulator:
        run = _exec(machine, emulator)
        run.wait_line("training: step")
        emulator.stage.announce(10)
        run.wait_line(f"reclaim announced by {provider}")
        assert run.exit_code() == Exit.RESUME, run.text
    ended = machine.events(1)[-1]
    assert (ended["outcome"], ended["steps_lost"]) == ("stopped", 0)
    assert machine.checkpoints() == [(1, ended["step"])]


@pytest.mark.parametrize("fault", ["503:2", "reset:2", "token-503:2", "401:3", "garbage:2"])
def test_reclaim_through_a_server_in_trouble(machine: Machine, fault: str) -> None:
    """A server that fails first delays the notice, and no more."""
    with Emulator("azure" if "token" not in fault and "401" not in fault else "aws") as emulator:
        emulator.faults = [parse_fault(fault)]
        emulator.stage.announce(30)
        run = _exec(machine, emulator)
        run.wait_line("reclaim announced")
        assert run.exit_code() == Exit.RESUME, run.text


def test_called_off(machine: Machine) -> None:
    """A reclaim that is called off does not end the training, and the journal says so."""
    with Emulator("azure") as emulator:
        emulator.stage.kind = "Terminate"
        emulator.stage.announce(3600)
        run = _exec(machine, emulator)
        run.wait_line("reclaim announced by azure")
        emulator.stage.cancel()
        run.wait_line("azure called off what it announced .*training goes on")
        run.signal(signal.SIGTERM)
        assert run.exit_code() == Exit.RESUME, run.text
    assert "called-off" in [event["event"] for event in machine.events(1)]


def test_hint_saves_early(machine: Machine) -> None:
    """A freeze is no end: it is saved, and training goes on."""
    with Emulator("azure") as emulator:
        emulator.stage.kind = "Freeze"
        run = _exec(machine, emulator)
        run.wait_line("training: step")
        emulator.stage.announce(900)
        run.wait_line("saved step .*notice")
        assert run.process.poll() is None


def test_acted_on_once(machine: Machine) -> None:
    """A machine that is still there after its reclaim was acted on is not stopped for it again."""
    with Emulator("aws") as emulator:
        emulator.stage.announce(2)
        assert _exec(machine, emulator).exit_code() == Exit.RESUME
        again = _exec(machine, emulator)
        again.wait_line("still announces what was acted on already")
        assert again.process.poll() is None


def test_the_next_reclaim_is_news(machine: Machine) -> None:
    """A second reclaim on one boot is acted on by a second agent, where all reclaims have one id, too."""
    with Emulator("gcp") as emulator:
        first = _exec(machine, emulator)
        first.wait_line("training: step")
        emulator.stage.announce(5)
        assert first.exit_code() == Exit.RESUME, first.text
        emulator.stage.cancel()
        again = _exec(machine, emulator)
        again.wait_line("training: step")
        wait_until(lambda: not _told(machine.directory), what="what is over is forgotten")
        emulator.stage.announce(5)
        again.wait_line("reclaim announced by gcp")
        assert again.exit_code() == Exit.RESUME, again.text
    assert {life for life, _ in machine.checkpoints()} == {1, 2}
    assert machine.events(2)[-1]["steps_lost"] == 0


def test_hint_before_the_training_attaches(machine: Machine) -> None:
    """An early save that is asked for while the training still loads is made at its first boundary."""
    go = machine.directory / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; exec {' '.join(TRAINER)} --steps 100000"
    with Emulator("azure") as emulator:
        emulator.stage.kind = "Freeze"
        emulator.stage.announce(900)
        environ = {"OUTLIVE_PROVIDER": "azure", "OUTLIVE_METADATA_ENDPOINT": emulator.url}
        run = machine.exec(command=["sh", "-c", waits], options=("--every", "1h"), environ=environ)
        run.wait_line("early save asked for by azure")
        go.touch()
        run.wait_line("saved step .*notice")
        assert run.process.poll() is None


def test_not_forgotten_with_a_killed_agent(machine: Machine) -> None:
    """A reclaim is acted on by the next agent if the first was killed, even where the server is gone."""
    with Emulator("azure") as emulator:
        emulator.stage.kind = "Terminate"
        emulator.stage.announce(3600)
        run = _exec(machine, emulator)
        run.wait_line("reclaim announced by azure")
        wait_until(lambda: _told(machine.directory), what="the notice is written down")
        run.process.kill()
        run.exit_code()
        again = _exec(machine, emulator, OUTLIVE_METADATA_ENDPOINT="http://127.0.0.1:1")
        again.wait_line("reclaim announced by azure")


def test_approved_only_after_the_save(machine: Machine) -> None:
    """Azure is told to go ahead once the last checkpoint is durable."""
    config = machine.directory / "o.yaml"
    config.write_text(f"run: t\nstore: {{location: {machine.store}}}\nreclaim: {{acknowledge: true}}\n")
    with Emulator("azure") as emulator:
        run = _exec(machine, emulator, OUTLIVE_CONFIG=str(config))
        run.wait_line("training: step")
        emulator.stage.announce(20)
        run.wait_line("saved step")
        assert run.exit_code() == Exit.RESUME, run.text
        assert len(emulator.stage.approved) == 1
    assert machine.checkpoints()


def _told(directory: Path) -> bool:
    return any(json.loads(path.read_bytes())["notices"] for path in directory.glob("**/*.notices"))
