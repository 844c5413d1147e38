"""A run whose copies wait beside the training until a test lets them go, and its boundaries as they were."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import outlive
from outlive.train import hiding
from outlive.train.copying import Copying
from outlive.train.snapshot import plan
from train.agent_double import AgentDouble
from train.lives import backward
from train.steps import settled


class Gate:
    """While it is closed, no byte is copied by any thread but the training's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        really = Copying.work

        def work(self_: Copying) -> None:
            if threading.current_thread().name == "outlive-copy":
                assert self.open.wait(20)
            really(self_)

        monkeypatch.setattr(Copying, "work", work)
        monkeypatch.setattr(hiding, "WORTH_BYTES", 0)

    def close(self) -> None:
        self.open.clear()


def model_and_adam(**options: Any) -> SimpleNamespace:
    model = nn.Sequential(nn.Linear(8, 300), nn.BatchNorm1d(300), nn.Linear(300, 200), nn.Linear(200, 1))
    return SimpleNamespace(model=model, optimizer=torch.optim.Adam(model.parameters(), **options))


def descend(objects: SimpleNamespace) -> torch.Tensor:
    loss: torch.Tensor = objects.model(torch.randn(4, 8)).square().mean()
    objects.optimizer.zero_grad()
    backward(loss)
    objects.optimizer.step()
    return loss


def image_of(run: outlive.Run) -> bytes:
    """What a snapshot at this very moment would hold."""
    made = plan(run._capture())
    image = bytearray(made.layout.size)
    made.copy_into(made.layout.windows(memoryview(image)))
    return bytes(image)


def tried(agent: AgentDouble, run: outlive.Run, step: Callable[[], object]) -> None:
    """The first save, which is copied at the boundary, and the comparison before the step after it."""
    step()
    run.save()
    run.step()
    settled(agent)
    step()


def save_hidden(run: outlive.Run, gate: Gate) -> bytes:
    """A boundary whose save is under way when this returns, with nothing copied yet; what it should hold."""
    gate.close()
    run.save()
    wanted = image_of(run)
    run.step()
    return wanted
