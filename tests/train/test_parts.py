"""What is described once and reused: never when it would read otherwise."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from outlive.train.snapshot import Plan, plan
from outlive.train.tracked import Tracked


class Counted(nn.Module):
    """Puts something of its own into its state."""

    def get_extra_state(self) -> list[int]:
        return [1]

    def set_extra_state(self, state: Any) -> None:
        raise AssertionError


def run_of() -> SimpleNamespace:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    run = SimpleNamespace(
        model=model, optimizer=optimizer, state={"best": 0.0, "list": [1]}, tracked=Tracked()
    )
    run.tracked.add("model", model)
    run.tracked.add("optimizer", optimizer)
    step(run)
    return run


def captured(run: SimpleNamespace) -> dict[str, Any]:
    return {"steps": 1, "objects": run.tracked.capture(), "state": run.state}


def image(made: Plan) -> bytes:
    raw = bytearray(made.layout.size)
    made.copy_into(made.layout.windows(memoryview(raw)))
    return bytes(raw)


def step(run: SimpleNamespace) -> None:
    run.optimizer.zero_grad()
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    run.optimizer.step()
    run.state["best"] += 1.0


def other_memory(run: SimpleNamespace) -> None:
    run.model[0].weight.data = torch.ones(4, 3)


def other_shape(run: SimpleNamespace) -> None:
    run.model[0].bias.data = run.model[0].bias.data.view(2, 2)


def other_strides(run: SimpleNamespace) -> None:
    run.model[0].weight.data = torch.ones(3, 4).t()


def frozen(run: SimpleNamespace) -> None:
    run.model[2].weight.requires_grad_(False)


def another_buffer(run: SimpleNamespace) -> None:
    run.model[1].running_mean = torch.full((4,), 7.0)


def tied(run: SimpleNamespace) -> None:
    run.model.append(nn.Linear(4, 2))
    run.model[3].weight = run.model[2].weight


def a_value_that_is_a_parameter(run: SimpleNamespace) -> None:
    run.state["alias"] = run.model[0].weight.detach()


def renamed(run: SimpleNamespace) -> None:
    run.model._modules["3"] = run.model._modules.pop("2")


def another_group(run: SimpleNamespace) -> None:
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})


def without_state(run: SimpleNamespace) -> None:
    del run.optimizer.state[run.model[0].bias]


def state_that_is_no_tensor(run: SimpleNamespace) -> None:
    run.optimizer.state[run.model[0].bias]["kind"] = "warm"


def another_learning_rate(run: SimpleNamespace) -> None:
    run.optimizer.param_groups[0]["lr"] = 0.5


def one_list_twice(run: SimpleNamespace) -> None:
    run.optimizer.param_groups[0]["a"] = run.optimizer.param_groups[0]["b"] = [1]


def extra(run: SimpleNamespace) -> None:
    run.model.append(Counted())


def hooked(run: SimpleNamespace) -> None:
    run.model.register_state_dict_post_hook(lambda module, state, prefix, local: state.update(more=1))


CHANGES = [
    other_memory,
    other_shape,
    other_strides,
    frozen,
    another_buffer,
    tied,
    a_value_that_is_a_parameter,
    renamed,
    another_group,
    without_state,
    state_that_is_no_tensor,
    another_learning_rate,
    one_list_twice,
    extra,
    hooked,
]


@pytest.mark.parametrize("change", CHANGES)
def test_described_again_is_described_as_new(change: Callable[[SimpleNamespace], None]) -> None:
    """Whatever changes between two saves, the later one says what it would say as the first one."""
    run = run_of()
    last = plan(captured(run)).layout
    for act in (step, change, captured):
        act(run)
        made, anew = plan(captured(run), last), plan(captured(run))
        assert (made.layout.table, made.values, made.steady) == (anew.layout.table, anew.values, anew.steady)
        assert image(made) == image(anew)
        last = made.layout


def test_a_step_describes_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an ordinary step changes needs no new description of any tensor."""
    run = run_of()
    first = plan(captured(run))
    step(run)
    monkeypatch.setattr("outlive.train.snapshot.lay_out", lambda *_: pytest.fail("laid out again"))
    assert plan(captured(run), first.layout).layout is first.layout
