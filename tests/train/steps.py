"""A small run and what an agent heard of it."""

import time
from typing import Any

import torch
from torch import nn

from outlive.staging.messages import SnapshotTaken
from train.agent_double import WAIT_SECONDS, AgentDouble
from train.lives import backward


def small() -> dict[str, Any]:
    model = nn.Linear(2, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)}


def descend(objects: dict[str, Any]) -> torch.Tensor:
    loss: torch.Tensor = objects["model"](torch.randn(3, 2)).square().mean()
    objects["optimizer"].zero_grad()
    backward(loss)
    objects["optimizer"].step()
    return loss


def steps(agent: AgentDouble) -> list[int]:
    """The steps of all snapshots so far."""
    assert agent.gone.wait(WAIT_SECONDS)
    return [message.step for message in agent.heard if isinstance(message, SnapshotTaken)]


def reasons(agent: AgentDouble) -> list[str]:
    assert agent.gone.wait(WAIT_SECONDS)
    return [message.reason for message in agent.heard if isinstance(message, SnapshotTaken)]


def settled(agent: AgentDouble) -> None:
    """Wait until the agent has stored what it was given, so that no save has to wait for an arena."""
    page, until = agent.asked, time.monotonic() + WAIT_SECONDS
    while page.freed(0) != page.begun(0):
        assert time.monotonic() < until, "the snapshot was never handed over"
