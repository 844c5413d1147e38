"""A copy that goes on beside the training holds the state of its boundary, bit for bit, or is not used."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import outlive
from train.agent_double import AgentDouble
from train.hidden import Gate, descend, image_of, model_and_adam, save_hidden, tried
from train.lives import backward
from train.steps import reasons, settled, steps


def check_next_step(
    agent: AgentDouble, gate: Gate, objects: SimpleNamespace, step: Callable[[], Any]
) -> None:
    """Save while nothing is copied yet, then let the step change everything: the image is of the boundary."""
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, step)
        wanted = save_hidden(run, gate)
        assert run._saving._taking is not None, "the copy goes on beside the training"
        step()
        assert image_of(run) != wanted
        settled(agent)
        gate.open.set()
        assert agent.last.image == wanted
        assert agent.last.packet.step == 2


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}, {"amsgrad": True}])
def test_the_next_step_waits_for_the_copy(agent: AgentDouble, gate: Gate, options: dict[str, bool]) -> None:
    """Whichever way Adam does its step, it begins when the last byte is copied; BatchNorm does not wait."""
    objects = model_and_adam(**options)
    check_next_step(agent, gate, objects, lambda: descend(objects))


def test_optimizers_with_a_closure(agent: AgentDouble, gate: Gate) -> None:
    """LBFGS, which changes parameters many times in one step, begins it when the last byte is copied."""
    model = nn.Sequential(nn.Linear(8, 600), nn.Linear(600, 1))
    objects = SimpleNamespace(model=model, optimizer=torch.optim.LBFGS(model.parameters(), max_iter=3))

    def closure() -> Tensor:
        objects.optimizer.zero_grad()
        loss: Tensor = model(torch.randn(4, 8)).square().mean()
        backward(loss)
        return loss

    check_next_step(agent, gate, objects, lambda: objects.optimizer.step(closure))


def test_a_scaler_steps_the_optimizer(agent: AgentDouble, gate: Gate) -> None:
    """A step that goes through GradScaler is a step."""
    objects = model_and_adam()
    scaler = torch.amp.GradScaler("cpu")

    def step() -> None:
        objects.optimizer.zero_grad()
        backward(scaler.scale(objects.model(torch.randn(4, 8)).square().mean()))
        scaler.step(objects.optimizer)
        scaler.update()

    check_next_step(agent, gate, SimpleNamespace(**vars(objects), scaler=scaler), step)


@pytest.mark.filterwarnings("ignore")  # what torch's compiler says of what it leaves out
def test_a_compiled_step(agent: AgentDouble, gate: Gate) -> None:
    """A step that torch has compiled waits as well, each time."""
    objects = model_and_adam()
    compiled = torch.compile(lambda: objects.optimizer.step(), backend="eager")

    def step() -> None:
        objects.optimizer.zero_grad()
        backward(objects.model(torch.randn(4, 8)).square().mean())
        compiled()

    check_next_step(agent, gate, objects, step)


def test_looks_of_parameters(agent: AgentDouble, gate: Gate) -> None:
    """Tied, channels-last, transposed, without dimensions, of 16 bits and complex: all of the boundary."""
    model: Any = nn.Module()
    model.tied = nn.Parameter(torch.randn(300, 200))
    model.again = model.tied
    model.last = nn.Parameter(torch.randn(8, 4, 40, 40).to(memory_format=torch.channels_last))
    model.turned = nn.Parameter(torch.randn(300, 200).t())
    model.part = nn.Parameter(torch.randn(400, 400)[:300, ::2].detach())
    model.scalar = nn.Parameter(torch.tensor(2.0))
    model.short = nn.Parameter(torch.randn(300, 200).bfloat16())
    model.complex = nn.Parameter(torch.randn(300, 200, dtype=torch.complex64))
    model.empty = nn.Parameter(torch.randn(0, 3))
    model.register_buffer("bytes", torch.arange(256, dtype=torch.uint8))
    model.register_buffer("eights", torch.randn(300, 200).to(torch.float8_e4m3fn))
    model.register_buffer("truth", torch.tensor([True, False]))
    model.register_buffer("view", model.tied.detach()[0])
    objects = SimpleNamespace(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        objects.optimizer.step()
        model.bytes.add_(1)
        objects.optimizer.zero_grad()

    check_next_step(agent, gate, objects, step)


def test_what_torch_does_not_count(agent: AgentDouble, gate: Gate) -> None:
    """A tensor that was made in inference mode, which has no count of changes, is copied at the boundary."""
    objects = model_and_adam()
    with torch.inference_mode():
        objects.model.register_buffer("table", torch.ones(300, 300))
    check_next_step(agent, gate, objects, lambda: descend(objects))


def swap(objects: SimpleNamespace) -> None:
    """As libraries for averaged weights do before an evaluation."""
    for parameter in objects.model.parameters():
        parameter.data.copy_(parameter.data * 0.9)


def load(objects: SimpleNamespace) -> None:
    objects.model.load_state_dict({k: v * 2 for k, v in objects.model.state_dict().items()})


@torch.no_grad()
def shrink(objects: SimpleNamespace) -> None:
    objects.model[2].weight.mul_(0.5)


def shrink_foreach(objects: SimpleNamespace) -> None:
    torch._foreach_mul_([parameter.detach() for parameter in objects.model.parameters()], 0.5)


def clear_moments(objects: SimpleNamespace) -> None:
    for state in objects.optimizer.state.values():
        state["exp_avg"].zero_()


def part_of_one(objects: SimpleNamespace) -> None:
    objects.model[2].weight.detach()[5, 5:7] = 1.0


@pytest.mark.parametrize("change", [swap, load, shrink, shrink_foreach, clear_moments, part_of_one])
def test_a_change_after_the_boundary_spoils_the_copy(
    agent: AgentDouble, gate: Gate, change: Callable[[SimpleNamespace], None]
) -> None:
    """It is not handed over, and the save is taken at the next boundary instead, there and then."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        change(objects)
        gate.open.set()
        descend(objects)
        wanted = image_of(run)
        run.step()
        assert run._saving._taking is None, "taken at the boundary"
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 3]
    assert reasons(agent) == ["hand", "hand"]


def convert(objects: SimpleNamespace) -> None:
    objects.model.half()


def replace_data(objects: SimpleNamespace) -> None:
    for parameter in objects.model.parameters():
        parameter.data = torch.zeros_like(parameter)


def replace_state(objects: SimpleNamespace) -> None:
    objects.optimizer.load_state_dict(objects.optimizer.state_dict())
    objects.optimizer.state.clear()


@pytest.mark.parametrize("change", [convert, replace_data, replace_state])
def test_new_memory_for_a_tensor_leaves_the_copy_alone(
    agent: AgentDouble, gate: Gate, change: Callable[[SimpleNamespace], None]
) -> None:
    """What gets other memory after the boundary is copied from the memory that it had."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        wanted = save_hidden(run, gate)
        change(objects)
        gate.open.set()
        run._saving.land()
        settled(agent)
        assert agent.last.image == wanted
        assert agent.last.packet.step == 2


def test_what_changes_after_every_boundary_is_never_copied_beside(agent: AgentDouble, gate: Gate) -> None:
    """The comparison after the first save sees every byte, also where torch does not count the change."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:

        def step() -> None:
            if run.steps:
                objects.model[2].weight.data[7, 7] += 1.0  # after run.step(), and before the next one
            descend(objects)

        tried(agent, run, step)
        wanted = save_hidden(run, gate)
        step()
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 2]


def test_what_rests_is_compared_and_not_copied(agent: AgentDouble, gate: Gate) -> None:
    """Frozen weights lie in the image since the first save; changed unseen, that is found out."""
    objects = model_and_adam()
    base = nn.Linear(300, 300).requires_grad_(False)
    with outlive.attach(base=base, **vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        wanted = save_hidden(run, gate)
        assert run._saving._taking is not None
        assert len(run._saving._taking._compared) == 1
        descend(objects)
        settled(agent)
        assert agent.last.image == wanted
        gate.open.set()
        base.weight.data[3, 3] += 1.0
        save_hidden(run, gate)
        descend(objects)
        wanted = image_of(run)
        run.step()
        settled(agent)
        assert agent.last.image == wanted
        gate.open.set()
        descend(objects)
        base.weight.data[3, 3] += 1.0
        wanted = save_hidden(run, gate)
        assert run._saving._taking is not None
        assert not run._saving._taking._compared
        descend(objects)
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 2, 4, 5]


def test_twice_is_enough(agent: AgentDouble, gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    """After two copies that were of no use the training waits for each, and that is said once, with why."""
    objects = model_and_adam()
    gate.close()  # so that the change comes before the copy, which the next step then makes itself
    with outlive.attach(every=1, **vars(objects)) as run:
        for _ in range(8):
            descend(objects)
            run.step()
            if run._saving._taking is not None:
                swap(objects)
            else:
                settled(agent)
        gate.open.set()
    assert steps(agent) == [1, 3, 5, 6, 7, 8]
    said = capsys.readouterr().err
    assert said.count("from now on the training waits for every copy") == 1
    assert "changed after run.step() and before the next optimizer step" in said


def test_parameters_that_come_later(agent: AgentDouble, gate: Gate) -> None:
    """A group that is added mid-run makes a new layout, whose copy is of its boundary too."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        objects.model.append(nn.Linear(1, 50))
        objects.optimizer.add_param_group({"params": objects.model[4].parameters()})
        wanted = save_hidden(run, gate)
        descend(objects)
        settled(agent)
        assert agent.last.image == wanted
        gate.open.set()
        wanted = save_hidden(run, gate)
        descend(objects)
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 2, 3]
