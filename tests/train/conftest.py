"""An agent for each test, at a socket of its own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from train.agent_double import AgentDouble
from train.hidden import Gate

settings.register_profile("outlive", deadline=None)  # a busy machine is no failure
settings.load_profile("outlive")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentDouble]:
    # pytest's own temporary paths may be longer than a socket's name can be
    with tempfile.TemporaryDirectory(prefix="outlive-") as folder:
        path = Path(folder) / "agent"
        monkeypatch.setenv("OUTLIVE_SOCKET", str(path))
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        with AgentDouble(path) as double:
            yield double


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()
