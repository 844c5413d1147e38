"""An optimizer whose model nobody handed over."""

from typing import Any

import pytest
import torch
from torch import nn

import outlive
from outlive.errors import StateError
from train.agent_double import AgentDouble
from train.steps import descend, small, steps


class Holder:
    """Keeps its weights in its own way, copied, as sharded and offloaded models do."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, Any]:
        return {"inner": [each.detach().clone() for each in self.model.parameters()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for own, was in zip(self.model.parameters(), state["inner"], strict=True):
            own.data.copy_(was)


def test_optimizer_without_its_model_is_refused(agent: AgentDouble) -> None:
    """Its checkpoints would hold moments of weights that are gone: nothing of the kind is ever saved."""
    objects = small()
    other = torch.optim.SGD(nn.Linear(3, 1, bias=False).parameters(), 0.1)
    descend(objects)
    with (
        pytest.raises(StateError) as caught,
        outlive.attach(optimizer=objects["optimizer"], other=other) as run,
    ):
        run.step()
    assert str(caught.value).splitlines() == [
        "optimizer steps 2 tensors that nothing keeps, of shape [2, 2], [2]",
        "other steps a tensor that nothing keeps, of shape [1, 3]",
    ]
    assert "hand their model to attach()" in (caught.value.hint or "")
    assert steps(agent) == []


def test_a_part_that_is_forgotten_is_refused(agent: AgentDouble) -> None:
    """A head beside the model counts, even where an unrelated module has the same shapes."""
    objects = small()
    head = nn.Linear(2, 2)
    objects["optimizer"].add_param_group({"params": head.parameters()})
    with (
        pytest.raises(StateError, match="optimizer steps 2 tensors"),
        outlive.attach(**objects) as run,
    ):
        run.step()


@pytest.mark.parametrize("how", ["value", "object", "part", "frozen", "late"])
def test_what_is_kept_in_another_way_is_not_refused(agent: AgentDouble, how: str) -> None:
    """On run.state, in an object with its own state, in a larger module, or never changed at all."""
    objects = small()
    model: nn.Module = objects["model"]
    ways: dict[str, dict[str, Any]] = {
        "value": {"weights": [each.detach() for each in model.parameters()]},
        "object": {"holder": Holder(model)},
        "part": {"model": nn.Sequential(model)},
    }
    if how == "frozen":
        model.requires_grad_(False)
    with outlive.attach(optimizer=objects["optimizer"], **ways.get(how, {})) as run:
        if how == "late":
            run.track(model=model)
        run.step()
        assert run.steps == 1
