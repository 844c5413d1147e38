"""When a copy that goes on beside the training is handed over, and when it is not made."""

import pytest
import torch

import outlive
from outlive.errors import ConfigError
from outlive.staging.messages import SnapshotTaken
from outlive.train import taking
from train.agent_double import WAIT_SECONDS, AgentDouble
from train.hidden import Gate, descend, image_of, model_and_adam, save_hidden, tried
from train.steps import settled, steps


def test_a_boundary_without_a_step_lets_the_copy_go(agent: AgentDouble, gate: Gate) -> None:
    """A finished copy is handed over at the next boundary, also if no optimizer has stepped in between."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        run.step()
        assert len(agent.kept) == 1
        gate.open.set()
        assert run._saving._taking is not None
        assert run._saving._taking._copying._copied.wait(WAIT_SECONDS)
        run.step()
        settled(agent)
        assert agent.last.packet.step == 2


def test_a_long_evaluation_does_not_hold_a_finished_copy(
    agent: AgentDouble, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the training does not come by in time, the copying thread hands over by itself."""
    monkeypatch.setattr(taking, "LATE_SECONDS", 0.0)
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        wanted = save_hidden(run, gate)
        gate.open.set()
        assert run._saving.link.wait(lambda: 2 in run._saving.link.results, seconds=WAIT_SECONDS)
        assert agent.last.image == wanted


def test_a_request_is_honoured_when_its_copy_is_whole(agent: AgentDouble, gate: Gate) -> None:
    """Until then the agent takes it for open; a trainer killed meanwhile leaves it nothing to take."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        serial = agent.asked.ask("interval")
        gate.close()
        run.step()
        assert agent.asked.honoured < serial
        assert agent.asked.begun(0) == 2, "what the arena held is marked as lost from the first byte on"
        assert [message.number for message in agent.heard if isinstance(message, SnapshotTaken)] == [1]
        gate.open.set()
        descend(objects)
        assert agent.asked.honoured == serial


def test_the_end_waits_for_the_copy(agent: AgentDouble, gate: Gate) -> None:
    """A run that ends while its last step is copied has that step saved, once."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        wanted = save_hidden(run, gate)
        gate.open.set()
    assert steps(agent) == [1, 2]
    assert agent.last.image == wanted


def test_the_end_replaces_a_copy_of_no_use(agent: AgentDouble, gate: Gate) -> None:
    """Where the copy of the last step is spoilt, the end is saved as it is: not nothing of that step."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        for parameter in objects.model.parameters():
            parameter.data.copy_(torch.zeros_like(parameter))
        wanted = image_of(run)
        gate.open.set()
    assert steps(agent) == [1, 2]
    assert agent.last.image == wanted


def test_an_exception_waits_for_the_copy(agent: AgentDouble, gate: Gate) -> None:
    """One in the middle of the next step leaves the save of the boundary standing."""
    objects = model_and_adam()

    def loop() -> None:
        with outlive.attach(**vars(objects)) as run:
            tried(agent, run, lambda: descend(objects))
            save_hidden(run, gate)
            gate.open.set()
            raise ValueError("loss is not a number")

    with pytest.raises(ValueError, match="loss is"):
        loop()
    assert steps(agent) == [1, 2]


def test_a_stop_is_copied_at_once(agent: AgentDouble, gate: Gate) -> None:
    """There is nothing to hide behind; a copy that is under way is handed over first."""
    objects = model_and_adam()

    def loop() -> None:
        with outlive.attach(**vars(objects)) as run:
            tried(agent, run, lambda: descend(objects))
            save_hidden(run, gate)
            agent.asked.ask("notice", stop=True)
            objects.optimizer.zero_grad()
            gate.open.set()
            run.step()

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == 75
    assert steps(agent) == [1, 2, 3]
    assert [kept.packet.stop for kept in agent.kept] == [False, False, True]


def test_an_agent_that_dies_meanwhile(agent: AgentDouble, gate: Gate) -> None:
    """A copy that nobody is left to take is as if it had never been begun: another agent gets newer state."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        agent.hang_up()
        assert run._saving.link.wait(lambda: run._saving.link.lost, seconds=WAIT_SECONDS)
        gate.open.set()
        descend(objects)
        while run._saving.link.lost:
            run.step()
        wanted = image_of(run)
        settled(agent)
        assert agent.last.image == wanted


def test_at_boundary_only(agent: AgentDouble, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUTLIVE_COPY=at-boundary makes the training wait for every copy; anything unknown is refused."""
    monkeypatch.setenv("OUTLIVE_COPY", "at-boundary")
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        assert run._saving._taking is None
    monkeypatch.setenv("OUTLIVE_COPY", "later")
    with pytest.raises(ConfigError, match="OUTLIVE_COPY=later is neither"):
        outlive.attach(**vars(objects))


def test_small_states_need_no_thread(agent: AgentDouble) -> None:
    """What is copied in the time that a thread takes to start is copied at the boundary."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        run.save()
        run.step()
        assert run._saving._taking is None


def test_what_a_save_has_cost_is_told(agent: AgentDouble, gate: Gate) -> None:
    """The script and the agent learn how long the training has stood still, also for the end of a copy."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        assert run.stall_seconds == 0.0
        tried(agent, run, lambda: descend(objects))
        first = run.stall_seconds
        assert 0.0 < first == agent.last.packet.stall_seconds
        save_hidden(run, gate)
        assert run.stall_seconds == first
        descend(objects)
        settled(agent)
        gate.open.set()
        assert run.stall_seconds == agent.last.packet.stall_seconds == agent.asked.stall_ns / 1e9 != first
