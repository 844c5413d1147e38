"""Trains through one life or several, and takes the fingerprint of what comes out."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import outlive
from outlive.train.tensors import bits
from train.agent_double import AgentDouble

Build = Callable[[], SimpleNamespace]
Step = Callable[[SimpleNamespace, Any], Any]


def seed(number: int) -> None:
    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


def backward(loss: torch.Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def live(
    agent: AgentDouble, build: Build, step: Step, *, until: int, stop_at: int | None = None
) -> tuple[SimpleNamespace, list[str]]:
    """One life: fresh objects, steps until `until`, or a stop at the boundary `stop_at`."""
    objects = build()
    losses = []

    def loop() -> None:
        with outlive.attach(**vars(objects)) as run:
            while run.steps < until:
                loss = step(objects, run)
                losses.append(float(loss).hex())
                if run.steps + 1 == stop_at:
                    agent.asked.ask("notice", stop=True)
                run.step(loss=loss)

    if stop_at is None:
        loop()
    else:
        with pytest.raises(SystemExit) as stopped:
            loop()
        assert stopped.value.code == 75
    assert agent.gone.wait(20)
    return objects, losses


def exact(agent: AgentDouble, build: Build, step: Step, *, until: int = 8, cut: int = 4) -> SimpleNamespace:
    """Assert that a cut run equals an uncut one, bit for bit. Returns the objects of its last life."""
    seed(1)
    whole, losses = live(agent, build, step, until=until)
    wanted = fingerprint(vars(whole))
    agent.kept.clear()
    seed(1)
    _, first = live(agent, build, step, until=until, stop_at=cut)
    seed(2)
    resumed, second = live(agent, build, step, until=until)
    assert first + second == losses
    assert fingerprint(vars(resumed)) == wanted
    return resumed


def fingerprint(objects: dict[str, Any]) -> dict[str, Any]:
    """All that these objects say of themselves, and the random generators, by value."""
    prints: dict[str, Any] = {
        name: _value(target.state_dict()) for name, target in objects.items() if hasattr(target, "state_dict")
    }
    prints["python"] = random.getstate()
    prints["numpy"] = _value(numpy.random.get_state(legacy=False))
    prints["torch"] = _value(torch.get_rng_state())
    return prints


def _value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        raw = bits(value).contiguous().cpu().numpy().tobytes()
        return ("tensor", str(value.dtype), tuple(value.shape), value.stride(), str(value.device), raw)
    if isinstance(value, numpy.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if isinstance(value, float):
        return value.hex()
    return value
