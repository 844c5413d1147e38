"""The same promises on a CUDA device."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import outlive
from train.agent_double import AgentDouble
from train.hidden import Gate, save_hidden, tried
from train.lives import backward, exact
from train.steps import settled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def step(objects: SimpleNamespace, run: Any) -> Tensor:
    data = torch.randn(16, 8, device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss: Tensor = objects.model(data).square().mean()
    objects.optimizer.zero_grad()
    backward(objects.scaler.scale(loss))
    objects.scaler.step(objects.optimizer)
    objects.scaler.update()
    return loss.detach()


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True}, {"foreach": True}])
def test_mixed_precision(agent: AgentDouble, options: dict[str, bool]) -> None:
    """Model, moments, scaler and the device's random generator go on bit for bit, each on its device."""

    def build() -> SimpleNamespace:
        model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.Linear(32, 4)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)  # type: ignore[arg-type]
        scaler = torch.amp.GradScaler("cuda", growth_interval=3)
        return SimpleNamespace(model=model, optimizer=optimizer, scaler=scaler, total=torch.zeros(2).cuda())

    resumed = exact(agent, build, step)
    state = resumed.optimizer.state[next(resumed.model.parameters())]
    assert state["exp_avg"].device.type == "cuda"
    assert state["step"].is_cuda == bool(options.get("fused") or options.get("capturable"))


def test_random_states_of_devices(agent: AgentDouble) -> None:
    """Numbers drawn on the device, and nothing else, continue."""

    def draw(objects: SimpleNamespace, run: Any) -> float:
        return float(torch.rand((), device="cuda"))

    exact(agent, lambda: SimpleNamespace(model=nn.Linear(1, 1).cuda()), draw)


def test_a_copy_beside_the_next_step(agent: AgentDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a stream of its own, from a training on another one, the image is of its boundary."""
    gate = Gate(monkeypatch)
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        model = nn.Sequential(nn.Linear(8, 300), nn.BatchNorm1d(300), nn.Linear(300, 1)).cuda()
        objects = SimpleNamespace(model=model, optimizer=torch.optim.Adam(model.parameters()))

        def train() -> None:
            objects.optimizer.zero_grad()
            backward(model(torch.randn(16, 8, device="cuda")).square().mean())
            objects.optimizer.step()

        with outlive.attach(**vars(objects)) as run:
            tried(agent, run, train)
            wanted = save_hidden(run, gate)
            assert run._saving._taking is not None
            gate.open.set()
            train()
            settled(agent)
            assert agent.last.image == wanted
