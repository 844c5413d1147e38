"""How a run begins: refused, resumed, with other objects, with another agent."""

import pytest
import torch
from torch import nn

import outlive
from outlive.errors import ConfigError, StateError
from outlive.staging.messages import Committed, Refused
from train.agent_double import WAIT_SECONDS, AgentDouble
from train.steps import descend, settled, small, steps


def test_superseded(agent: AgentDouble) -> None:
    """A life that has a successor stops without saving, with its own code."""

    def loop() -> None:
        with outlive.attach(**small()) as run:
            run.step()
            agent.tell(Refused(message="life 2 exists"))
            while True:
                run.step()

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == 76
    assert steps(agent) == []


def test_refused_at_the_start(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """What the agent refuses is two lines and a code, not a traceback."""
    agent.refuse = "the run is finished"
    with pytest.raises(SystemExit) as stopped:
        outlive.attach(**small())
    assert stopped.value.code == 78
    assert "Error: the run is finished\noutlive: Try: start another" in capsys.readouterr().err


def test_a_daemon_that_comes_back(agent: AgentDouble) -> None:
    """Training goes on without its agent, and finds it again: same life, nothing restored twice."""
    agent.every_steps = 1
    objects = small()
    with outlive.attach(**objects) as run:
        descend(objects)
        run.step()
        settled(agent)
        weight = objects["model"].weight.clone()
        agent.hang_up()
        while not run._saving.link.lost:
            pass
        assert agent.gone.wait(WAIT_SECONDS)
        run.step()
        assert torch.equal(objects["model"].weight, weight)
        settled(agent)
    assert steps(agent) == [1, 2]
    assert agent.life == 1


def test_resumed_run_says_where_it_is(agent: AgentDouble) -> None:
    """run.steps counts over all lives, and restored_from names the checkpoint."""
    with outlive.attach(**small()) as run:
        assert run.restored_from is None
        run.step()
        run.step()
    with outlive.attach(**small()) as run:
        assert run.steps == 2
        assert str(run.restored_from) == "000001-000000000002"
    assert steps(agent) == [2]


def test_objects_may_come_and_go(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """What the checkpoint lacks starts anew, what nobody claims is left out, and both are said."""
    with outlive.attach(old=nn.Linear(1, 1), **small()) as run:
        run.step()
    with outlive.attach(new=nn.Linear(1, 1), **small()) as run:
        run.step()
    said = capsys.readouterr().err
    assert "new is not in the checkpoint and starts anew" in said
    assert "the checkpoint holds old, which nothing has claimed" in said


def test_a_value_cannot_become_an_object(agent: AgentDouble) -> None:
    """Nor an object a value: that is another program."""
    with outlive.attach(thing=1) as run:
        run.step()
    with pytest.raises(StateError, match="thing: a plain value in the checkpoint, an object here"):
        outlive.attach(thing=nn.Linear(1, 1))


def test_a_forgotten_scheduler_is_noticed(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A scheduler that outlive was not given would start again with each life."""
    objects = small()
    torch.optim.lr_scheduler.StepLR(objects["optimizer"], 1)
    with outlive.attach(**objects) as run:
        descend(objects)
        run.step()
    assert "optimizer has a scheduler that is not tracked" in capsys.readouterr().err


def test_run_name_that_is_not_the_agents(agent: AgentDouble) -> None:
    """Two names for one run are a mistake."""
    with pytest.raises(ConfigError, match="run='other', and its agent runs it as 'double'"):
        outlive.attach(run="other", **small())


def test_settings_are_checked_all_at_once(agent: AgentDouble) -> None:
    """And before anything is started."""
    with pytest.raises(ConfigError) as refused:
        outlive.attach(run="a/b", store="", every=0)
    assert len(str(refused.value).splitlines()) == 3


def test_several_processes_are_refused(agent: AgentDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearly, instead of saving one rank of many."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 8"):
        outlive.attach(**small())


def test_track_needs_an_object(agent: AgentDouble) -> None:
    """Values live on run.state."""
    with outlive.attach(**small()) as run, pytest.raises(ConfigError, match=r"use run\.state|no state_dict"):
        run.track(best=0.0)


def test_state_is_a_bag(agent: AgentDouble) -> None:
    """Attributes come, go, can be listed, and a missing one says what there is."""
    with outlive.attach(best=1) as run:
        run.state.more = [2]
        assert list(run.state) == ["best", "more"]
        assert "more" in run.state
        assert repr(run.state) == "State(best=1, more=[2])"
        del run.state.more
        with pytest.raises(AttributeError, match=r"run\.state has no 'more'; it holds best"):
            _ = run.state.more


def test_committed_means_committed(agent: AgentDouble) -> None:
    """Leaving the block waits for the checkpoint: afterwards the process may go."""
    with outlive.attach(**small()) as run:
        run.step()
        link = run._saving.link
    assert isinstance(link.results[1], Committed)
