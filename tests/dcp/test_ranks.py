"""Ranks under real torchrun: what four have saved, two load, as from a directory of torch's own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from dcp.states import same
from fakes.commands import Cli
from outlive.objects.location import open_store
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.newest import read_manifest
from outlive.store.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where four ranks have saved two checkpoints."""
    folder = tmp_path_factory.mktemp("ranks")
    _torchrun(4, "save", folder)
    return folder


def test_every_rank_has_a_part_of_one_checkpoint(saved: Path) -> None:
    """One manifest names what each of four ranks has sent; all of it is there and is verified."""
    store = open_store(str(saved / "store"))
    manifest = read_manifest(store, "gpt", CheckpointId(1, 2))
    assert [(part.rank, part.world) for part in manifest.parts] == [(rank, 4) for rank in range(4)]
    assert all(part.bytes for part in manifest.parts)
    assert verify(store, manifest).ok


def test_two_ranks_load_what_four_have_saved(saved: Path) -> None:
    """Resharded from 4 to 2, model and optimizer equal those of torch's own checkpoint, bit for bit."""
    _torchrun(2, "load", saved)
    then, now = _said(saved, "save", 4), _said(saved, "load", 2)
    for rank in now:
        assert rank["torch"] == rank["1"] == then[0]["1"]
        assert rank["newest"] == then[0]["2"] != then[0]["1"]
        assert rank["1 step"] == [1, "000001-000000000001"]
        assert rank["newest step"] == [2, "000001-000000000002"]


def test_the_cli_exports_what_ranks_have_saved(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without torch.distributed the shards become one file, with the tensors of torch's own checkpoint."""
    target = saved / "model.safetensors"
    said = Cli(capsys)("export", "gpt@1", str(target), "--store", str(saved / "store"), "--force", "--json")
    assert (said.code, said.json["objects"]) == (0, ["model"])
    found = load_file(target)
    theirs: dict[str, Any] = {"model": {name: torch.zeros_like(tensor) for name, tensor in found.items()}}
    load(theirs, storage_reader=FileSystemReader(saved / "torch"))
    assert len(found) == 6
    same(theirs["model"], found)


def test_the_cli_shows_whole_tensors_and_every_part(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint of four ranks is shown as the state that it is, with what each rank holds of it."""
    shown = Cli(capsys)("show", "gpt@2", "--store", str(saved / "store"), "--json").json
    shapes = {tensor["path"]: tensor["shape"] for tensor in shown["tensors"]}
    assert shapes["model.1.weight"] == shapes["optimizer.state.1.weight.exp_avg"] == [33, 7]
    assert [part["rank"] for part in shown["parts"]] == [0, 1, 2, 3]
    assert sum(part["bytes"] for part in shown["parts"]) == shown["bytes"]
    page = Cli(capsys)("show", "gpt@2", "--store", str(saved / "store")).out
    assert "4, each with a part" in page


def test_all_ranks_pass_over_what_one_finds_damaged(saved: Path) -> None:
    """A chunk of one part that is altered makes every rank load the checkpoint before, the same on all."""
    store = open_store(str(saved / "store"))
    manifest = read_manifest(store, "gpt", CheckpointId(1, 2))
    last = manifest.parts[3].chunks[0]
    path = saved / "store" / layout.chunk("gpt", last.home, blake3=last.blake3)
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    _torchrun(2, "load", saved)
    for rank in _said(saved, "load", 2):
        assert rank["newest"] == rank["1"]
        assert rank["newest step"] == [1, "000001-000000000001"]


def _torchrun(ranks: int, action: str, folder: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*launcher, str(TESTS / "dcp" / "sharded.py"), action, str(folder)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr[:4000]}\n...\n{done.stderr[-4000:]}"


def _said(folder: Path, action: str, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{action}-{rank}.json").read_text()) for rank in range(ranks)]
