"""A run that was cut goes on as if it had not been: one test a trap."""

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import outlive
from train.agent_double import AgentDouble
from train.lives import backward, exact, live, seed


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def descend(objects: SimpleNamespace, run: Any = None) -> Tensor:
    """One ordinary training step on random data."""
    loss: Tensor = objects.model(torch.randn(6, 4)).square().mean()
    objects.optimizer.zero_grad()
    backward(loss)
    objects.optimizer.step()
    if isinstance(getattr(objects, "scheduler", None), lr_scheduler.ReduceLROnPlateau):
        objects.scheduler.step(loss.detach())
    elif hasattr(objects, "scheduler"):
        objects.scheduler.step()
    return loss.detach()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def plain() -> SimpleNamespace:
    model = net()
    return SimpleNamespace(model=model, optimizer=adam(model))


def test_model_and_adam(agent: AgentDouble) -> None:
    """Parameters, BatchNorm's buffers, Adam's moments and every loss are those of an uninterrupted run."""
    exact(agent, plain, descend)


def test_resume_of_a_resume(agent: AgentDouble) -> None:
    """A second cut, one step after the first, changes nothing either."""
    exact(agent, plain, descend)
    last = agent.last
    agent.kept.clear()
    torch.manual_seed(1)
    live(agent, plain, descend, until=8, stop_at=3)
    live(agent, plain, descend, until=8, stop_at=4)
    live(agent, plain, descend, until=8)
    assert agent.last.image == last.image


def test_random_generators(agent: AgentDouble) -> None:
    """python's, numpy's and torch's global generators go on where they were, held-back Gaussians included."""

    def step(objects: SimpleNamespace, run: Any) -> float:
        return random.gauss(0, 1) + numpy.random.normal() + float(torch.rand(()))

    exact(agent, lambda: SimpleNamespace(model=nn.Linear(1, 1)), step, until=7, cut=3)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 2, 6], 0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.1, step_size_up=3, cycle_momentum=False),
    "WarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "Plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=10.0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedulers(agent: AgentDouble, kind: str) -> None:
    """Building a scheduler resets the learning rate; what was saved wins, whatever the order of arguments."""

    def build() -> SimpleNamespace:
        model = net()
        optimizer = adam(model)
        return SimpleNamespace(scheduler=SCHEDULERS[kind](optimizer), optimizer=optimizer, model=model)

    exact(agent, build, descend)


@pytest.mark.parametrize("kind", ["StepLR", "OneCycleLR"])
def test_scheduler_made_after_attach(agent: AgentDouble, kind: str) -> None:
    """A scheduler that is made later and handed to track() does not leave its fresh learning rate behind."""

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        if not hasattr(run, "late"):
            run.late = SCHEDULERS[kind](objects.optimizer)
            run.track(scheduler=run.late)
        loss = descend(objects)
        run.late.step()
        return loss

    exact(agent, plain, step)


def test_gradscaler(agent: AgentDouble) -> None:
    """The scale and the count of good steps since it last grew are kept."""

    def build() -> SimpleNamespace:
        made = plain()
        made.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        return made

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        loss: Tensor = objects.model(torch.randn(6, 4)).square().mean()
        objects.optimizer.zero_grad()
        backward(objects.scaler.scale(loss))
        objects.scaler.step(objects.optimizer)
        objects.scaler.update()
        return loss.detach()

    resumed = exact(agent, build, step, until=8, cut=5)
    assert resumed.scaler.get_scale() == 65536.0 * 4


def test_gradscaler_that_is_switched_off(agent: AgentDouble) -> None:
    """Its state is an empty dict, which it refuses to load; that stops nobody."""

    def build() -> SimpleNamespace:
        made = plain()
        made.scaler = torch.amp.GradScaler("cpu", enabled=False)
        return made

    exact(agent, build, descend)


def test_ema(agent: AgentDouble) -> None:
    """The shadow parameters and their counter are kept, though nothing trains them."""

    def build() -> SimpleNamespace:
        made = plain()
        average = get_ema_multi_avg_fn(0.9)  # type: ignore[no-untyped-call]
        made.ema = AveragedModel(made.model, multi_avg_fn=average, use_buffers=True)
        return made

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        loss = descend(objects)
        objects.ema.update_parameters(objects.model)
        return loss

    resumed = exact(agent, build, step)
    assert int(resumed.ema.n_averaged) == 8


def test_plain_values(agent: AgentDouble) -> None:
    """What lives on run.state goes on: numbers exactly, containers, tensors."""

    def build() -> SimpleNamespace:
        return SimpleNamespace(model=nn.Linear(1, 1), best=math.inf, seen={1: []}, sum=torch.zeros(2))

    def step(objects: SimpleNamespace, run: Any) -> float:
        value = random.random()
        run.state.best = min(run.state.best, value)
        run.state.seen[1].append(value)
        run.state.sum += value
        return float(run.state.best + sum(run.state.seen[1]) + float(run.state.sum.sum()))

    exact(agent, build, step)


class WideMoments(torch.optim.Optimizer):
    """Keeps float32 moments for bfloat16 parameters, which torch's own loading would cast down."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    if not state:
                        state["moment"] = torch.zeros_like(parameter, dtype=torch.float32)
                        state["step"] = 0
                    state["step"] += 1
                    state["moment"].mul_(0.9).add_(parameter.grad.float(), alpha=0.1)
                    parameter.add_(state["moment"].to(parameter.dtype), alpha=-group["lr"])


def test_wide_moments_of_narrow_parameters(agent: AgentDouble) -> None:
    """float32 moments of bfloat16 parameters stay float32."""

    def build() -> SimpleNamespace:
        model = nn.Linear(4, 2).bfloat16()
        return SimpleNamespace(model=model, optimizer=WideMoments(model.parameters()))

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        loss: Tensor = objects.model(torch.randn(6, 4).bfloat16()).square().mean()
        objects.optimizer.zero_grad()
        backward(loss)
        objects.optimizer.step()
        return loss.detach()

    exact(agent, build, step)


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
        lambda ps: torch.optim.SGD(ps, 0.1),
        lambda ps: torch.optim.Adam(ps, torch.tensor(0.01)),
        lambda ps: torch.optim.Adam(ps, 0.01, amsgrad=True, fused=True),
        lambda ps: torch.optim.Adagrad(ps, 0.01),
        lambda ps: torch.optim.NAdam(ps, 0.01),
        lambda ps: torch.optim.RMSprop(ps, 0.01),
    ],
)
def test_optimizers(agent: AgentDouble, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """Whatever an optimizer keeps, a tensor as learning rate included, is kept."""

    def build() -> SimpleNamespace:
        model = net()
        return SimpleNamespace(model=model, optimizer=make(model.parameters()))

    exact(agent, build, descend)


def test_lbfgs(agent: AgentDouble) -> None:
    """An optimizer with lists of tensors in its state, and one state for all parameters."""

    def build() -> SimpleNamespace:
        model = nn.Linear(4, 2)
        return SimpleNamespace(model=model, optimizer=torch.optim.LBFGS(model.parameters(), max_iter=3))

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        data = torch.randn(6, 4)

        def closure() -> Tensor:
            objects.optimizer.zero_grad()
            loss: Tensor = objects.model(data).square().mean()
            backward(loss)
            return loss

        return objects.optimizer.step(closure).detach()  # type: ignore[no-any-return]

    exact(agent, build, step)


class Renamed(torch.optim.SGD):
    """Has a state_dict of its own, so it is loaded by that."""

    def state_dict(self) -> dict[str, Any]:
        return {"inner": super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state["inner"])


def test_optimizer_with_its_own_state_dict(agent: AgentDouble) -> None:
    """It knows best how to save and load itself."""

    def build() -> SimpleNamespace:
        model = net()
        return SimpleNamespace(model=model, optimizer=Renamed(model.parameters(), 0.1, momentum=0.9))

    exact(agent, build, descend)


def test_parameters_in_another_order(agent: AgentDouble) -> None:
    """Moments follow their parameter's name, not its place: a reordered optimizer goes on the same."""
    torch.manual_seed(1)
    turned = False

    def build() -> SimpleNamespace:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        parameters = list(model.parameters())
        return SimpleNamespace(model=model, optimizer=adam_of(parameters[::-1] if turned else parameters))

    def adam_of(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, 0.01)

    whole, losses = live(agent, build, descend, until=8)
    agent.kept.clear()
    torch.manual_seed(1)
    _, first = live(agent, build, descend, until=8, stop_at=4)
    turned = True
    resumed, second = live(agent, build, descend, until=8)
    assert first + second == losses
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        moments = [objects.optimizer.state[p]["exp_avg"] for objects, p in ((whole, one), (resumed, other))]
        assert torch.equal(*moments)


def test_optimizer_over_unnamed_parameters(agent: AgentDouble) -> None:
    """Parameters that an object keeps in its own way, in no module, are known by their place."""

    class Holder:
        def __init__(self, extra: nn.Parameter) -> None:
            self.extra = extra

        def state_dict(self) -> dict[str, Any]:
            return {"extra": self.extra.detach()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.extra.data.copy_(state["extra"])

    def build() -> SimpleNamespace:
        model = net()
        extra = nn.Parameter(torch.ones(3))
        groups: Any = [{"params": model.parameters()}, {"params": [extra], "lr": 0.5}]
        return SimpleNamespace(model=model, holder=Holder(extra), optimizer=torch.optim.Adam(groups))

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        loss: Tensor = (objects.model(torch.randn(6, 4)).mean() * objects.holder.extra).square().mean()
        backward(loss)
        objects.optimizer.step()
        objects.optimizer.zero_grad()
        return loss.detach()

    resumed = exact(agent, build, step)
    assert resumed.optimizer.param_groups[1]["lr"] == 0.5


def test_accumulation_in_micro_batches(agent: AgentDouble) -> None:
    """With a boundary a micro-batch, a stop in the middle of an accumulation waits until it is complete."""

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        loss: Tensor = objects.model(torch.randn(6, 4)).square().mean()
        backward(loss)
        if (run.steps + 1) % 4 == 0:
            objects.optimizer.step()
            objects.optimizer.zero_grad()
        return loss.detach()

    exact(agent, plain, step, until=16, cut=5)
    assert [kept.packet.step for kept in agent.kept] == [8, 16]


def test_accumulation_begun_after_the_step(agent: AgentDouble) -> None:
    """A boundary at which the next accumulation has already begun is not a place for a save either."""

    def step(objects: SimpleNamespace, run: Any) -> Tensor:
        if run.steps % 8 == 4:
            objects.optimizer.step()
            objects.optimizer.zero_grad()
        loss: Tensor = objects.model(torch.randn(6, 4)).square().mean()
        backward(loss)
        if run.steps % 8 == 7:
            objects.optimizer.step()
            objects.optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    exact(agent, plain, step, until=16, cut=5)
    assert [kept.packet.step for kept in agent.kept] == [8, 16]


def test_data_made_after_attach_is_the_same(agent: AgentDouble) -> None:
    """A random split made between attach and the loop comes out in the second life as in the first."""
    splits: list[list[int]] = []

    def life(stop_at: int | None) -> None:
        seed(5)
        with outlive.attach(best=0) as run:
            splits.append(torch.randperm(100).tolist())
            for _ in run.epochs(1):
                for _ in run.batches(list(range(4))):
                    torch.rand(3)
                    if run.steps + 1 == stop_at:
                        agent.asked.ask("notice", stop=True)
                    run.step()

    with pytest.raises(SystemExit):
        life(stop_at=2)
    life(stop_at=None)
    assert splits[0] == splits[1]
