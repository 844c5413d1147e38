"""Where attach may be called, and runs that no `with` block leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import outlive
from outlive.errors import ConfigError
from train.agent_double import AgentDouble
from train.steps import reasons, small, steps

SPAWNING = """
import torch, outlive
from torch.utils.data import DataLoader
print("imported", flush=True)
with outlive.attach(model=torch.nn.Linear(1, 1)) as run:
    for _ in run.batches(DataLoader([1.0, 2.0], num_workers=1, multiprocessing_context="spawn")):
        run.step()
"""


def test_a_worker_that_imports_the_script(agent: AgentDouble, tmp_path: Path) -> None:
    """A spawned worker that runs the whole script again does not take the run over, and says what to do."""
    script = tmp_path / "train.py"
    script.write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, str(script)], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout.count("imported") == 2
    assert "a process that this script starts imports it again" in done.stderr
    assert agent.life == 1


class Attaching(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        with pytest.raises(ConfigError, match="in a worker of a DataLoader"):
            outlive.attach(model=nn.Linear(1, 1))
        return index


def test_not_in_a_worker(agent: AgentDouble) -> None:
    """A data worker can't attach."""
    assert len(list(torch.utils.data.DataLoader(Attaching(), num_workers=1))) == 1
    assert agent.life == 0


def test_close_without_with(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that doesn't use `with` is told so, and close() saves the end; once more does no harm."""
    run = outlive.attach(**small())
    run.step()
    run.step()
    run.close()
    run.close()
    assert "attached without 'with'" in capsys.readouterr().err
    assert steps(agent) == [2]
    assert reasons(agent) == ["finished"]
    with pytest.raises(ConfigError, match="after the run was left"):
        run.step()


def test_attached_again(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook's cell that runs again lets go of the run it had, rather than to fight with it."""
    first = outlive.attach(every=1, **small())
    first.step()
    with outlive.attach(**small()) as run:
        assert run.steps == 1
        run.step()
    assert "attached before and never left" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        first.step()


def test_with_inside_with(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Leaving a run twice, by `with` and by close(), is leaving it once."""
    with outlive.attach(**small()) as run:
        run.step()
        run.close()
    assert steps(agent) == [1]
    assert "without 'with'" not in capsys.readouterr().err
