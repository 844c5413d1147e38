"""``outlive export`` in torch's own formats, from what was imported: the same tensors come out again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

import outlive.dcp
from dcp.states import same
from fakes.commands import Cli
from outlive.dcp import convert

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")

TENSORS = {
    "layer.weight": torch.arange(12.0).view(3, 4) / 7,
    "layer.bias": torch.tensor([1.5, -0.0, float("inf")]),
    "count": torch.tensor(7),
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, with a run in the store."""
    monkeypatch.setenv("OUTLIVE_STORE", str(tmp_path / "store"))
    convert.write_safetensors(tmp_path / "in.safetensors", TENSORS)
    cli = Cli(capsys)
    assert cli("import", str(tmp_path / "in.safetensors"), "gpt", "--as", "net").code == 0
    return cli


def test_a_file_for_torch_load(cli: Cli, tmp_path: Path) -> None:
    """A name that ends in .pt is a file that torch.load(weights_only=True) reads, in the type asked for."""
    said = cli("export", "gpt", str(tmp_path / "out.pt"), "--dtype", "bfloat16")
    assert "torch.load(" in said.out
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    same({n: t.to(torch.bfloat16) if t.is_floating_point() else t for n, t in TENSORS.items()}, found)


def test_torch_loads_what_a_run_has_saved(cli: Cli, tmp_path: Path) -> None:
    """The reader gives torch the objects of any run of ours, under their names, not only what torch saved."""
    into: dict[str, Any] = {"net": {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}}
    load(into, storage_reader=outlive.dcp.Reader(str(tmp_path / "store"), run="gpt"))
    same(TENSORS, into["net"])


def test_a_directory_for_torchs_own_checkpoints(cli: Cli, tmp_path: Path) -> None:
    """--format dcp is what torch.distributed.checkpoint loads, under the object's name."""
    assert cli("export", "gpt", str(tmp_path / "out"), "--format", "dcp").code == 0
    into: dict[str, Any] = {"net": {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}}
    load(into, storage_reader=FileSystemReader(tmp_path / "out"))
    same(TENSORS, into["net"])
    assert cli("export", "gpt", str(tmp_path / "out"), "--format", "dcp").code != 0
    assert cli("export", "gpt", str(tmp_path / "out"), "--format", "dcp", "--force").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.safetensors", "out", "store"]
