"""Values across lives: those that the script also holds under names of its own, and those it sets anew."""

import random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import outlive
from train.agent_double import AgentDouble
from train.lives import backward, exact
from train.steps import descend, small


def noisy() -> SimpleNamespace:
    """A training that draws from generators of its own, each under a name of its own."""
    model = nn.Linear(2, 2)
    shuffle = torch.Generator()
    shuffle.manual_seed(4)
    return SimpleNamespace(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        noise=numpy.random.default_rng(1),
        old=numpy.random.RandomState(2),
        pick=random.Random(3),
        shuffle=shuffle,
    )


def noisy_step(objects: SimpleNamespace, run: Any) -> Any:
    points = torch.randn(3, 2, generator=objects.shuffle)
    points += float(objects.noise.normal()) + float(objects.old.normal()) + objects.pick.gauss(0, 1)
    loss = objects.model(points).square().mean()
    objects.optimizer.zero_grad()
    backward(loss)
    objects.optimizer.step()
    return loss.detach()


def test_own_generators(agent: AgentDouble) -> None:
    """A generator given to attach is kept in place: the script's own name for it draws on, bit for bit."""
    exact(agent, noisy, noisy_step)


def test_own_generator_of_a_loader(agent: AgentDouble) -> None:
    """A generator may be a loader's and be given to attach, too: the order is the same."""

    def epochs(cut: int | None) -> list[float]:
        shuffle = torch.Generator()
        shuffle.manual_seed(9)
        loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, shuffle=True, generator=shuffle)
        seen: list[float] = []
        with outlive.attach(every=1, shuffle=shuffle, **small()) as run:
            for _ in run.epochs(3):
                for (batch,) in run.batches(loader):
                    seen += batch.tolist()
                    if run.steps + 1 == cut:
                        agent.asked.ask("notice", stop=True)
                    run.step()
        return seen

    whole = epochs(None)
    for cut in (3, 4):
        agent.kept.clear()
        with pytest.raises(SystemExit):
            epochs(cut)
        assert epochs(None) == whole[2 * cut :]


def test_a_list_under_two_names(agent: AgentDouble) -> None:
    """What the script appends to a list that it gave to attach is kept in the second life as in the first."""
    for life in (1, 2, 3):
        history: list[float] = []
        objects = small()
        with outlive.attach(history=history, **objects) as run:
            descend(objects)
            history.append(life)
            run.step()
            assert run.state.history == list(range(1, life + 1))


def test_a_start_set_after_attach_is_told(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is set before the loop hides the saved one, which is said; counting on from it is not."""
    for _ in range(2):
        with outlive.attach(count=0, same=1, **small()) as run:
            run.state.count += 1
            run.state.same = 1
            run.state.best = 0.5
            for _batch in run.batches([1]):
                run.state.last = run.state.best = 0.25 + run.state.count
                run.step()
    said = capsys.readouterr().err
    assert "run.state.best was set to 0.5 before the loop, so the saved 1.25 is gone" in said
    assert said.count("before the loop") == 1
