"""In and out again: a model is imported, trained by ranks under ``attach``, exported, read by torch."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load

import outlive.dcp
from dcp.states import same
from dcp.verbs import verb

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
TRAINING = Path(__file__).with_name("attached.py")


def test_a_model_goes_in_is_trained_by_ranks_and_comes_out(tmp_path: Path) -> None:
    """Two ranks share what one file held, and what both have learnt is one file again, the same for torch."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 3))
    torch.save(model.state_dict(), tmp_path / "in.pt")
    store = ("--store", str(tmp_path / "store"))
    verb("import", str(tmp_path / "in.pt"), "gpt", *store)
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TRAINING))
    verb("exec", *store, "--run", "gpt", "--", sys.executable, *ranks)
    verb("export", "gpt", str(tmp_path / "out.safetensors"), *store)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in (torch.ones(4, 10), torch.zeros(4, 10)):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    found = load_file(tmp_path / "out.safetensors")
    assert found.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found[name], tensor)
    into: dict[str, Any] = {"model": {name: torch.zeros_like(tensor) for name, tensor in found.items()}}
    load(into, storage_reader=outlive.dcp.Reader(str(tmp_path / "store"), run="gpt"))
    same(found, into["model"])
