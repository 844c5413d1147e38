"""What torch has saved becomes a checkpoint that ``attach`` begins with, and nothing in it is executed."""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from dcp.states import same
from dcp.verbs import verb
from fakes.shadows import cast_shadows
from outlive.dcp import convert
from outlive.dcp.naming import chosen
from outlive.errors import ConfigError, Damaged, OutliveError
from outlive.train.imported import completed
from outlive_agent import torch_side

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")

TRAINING = """
import json, sys
import outlive, torch
from torch import nn

torch.manual_seed(99)
model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
model[0].bias.requires_grad_(False)
model.eval()
optimizer = torch.optim.Adam(model.parameters())
with outlive.attach(model=model, optimizer=optimizer) as run:
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    kept = [run.steps, model[0].bias.requires_grad, model.training]
    print(json.dumps([weights, kept]))
    for _ in run.epochs(1):
        for x in run.batches([torch.ones(4, 4)] * 2):
            model(x).sum().backward()
            optimizer.step()
            run.step()
"""


def _model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


def _directory(folder: Path) -> Path:
    state = {"model": _model().state_dict(), "optimizer": {"lr": 1.0, "x": torch.ones(3)}, "epoch": 3}
    save(state, storage_writer=FileSystemWriter(folder))
    return folder


def test_a_training_begins_with_what_torch_has_saved(tmp_path: Path) -> None:
    """From a checkpoint directory to attach(): the model is that one, and all else as the script has it."""
    source = _directory(tmp_path / "step-40")
    (tmp_path / "train.py").write_text(TRAINING)
    common = ["--store", str(tmp_path / "store")]
    said = verb("import", str(source), "gpt", "--step", "40", *common)
    assert "not taken along (2 names): epoch, optimizer" in said.stdout
    said = verb("exec", *common, "--run", "gpt", "--", sys.executable, str(tmp_path / "train.py"))
    assert "optimizer is not in the checkpoint and starts anew" in said.stderr
    assert "may not be bit-exact" not in said.stderr
    weights, kept = json.loads(said.stdout)
    assert kept == [40, False, False]
    assert weights == {name: tensor.tolist() for name, tensor in _model().state_dict().items()}


def test_every_kind_of_file_gives_the_same_model(tmp_path: Path) -> None:
    """A state_dict, a checkpoint of several things, a wrapped model, a directory: one set of tensors."""
    clean = dict(_model().state_dict())
    wrapped = {f"module._orig_mod.{name}": tensor for name, tensor in clean.items()}
    torch.save(clean, tmp_path / "bare.pt")
    torch.save({"state_dict": wrapped, "optimizer": {"state": {}}}, tmp_path / "all.pt")
    torch.save({"odd": clean, "epoch": 3}, tmp_path / "odd.pt", _use_new_zipfile_serialization=False)
    convert.write_safetensors(tmp_path / "model.safetensors", clean)
    _directory(tmp_path / "step-40")
    for name, key in (
        ("bare.pt", None),
        ("all.pt", None),
        ("odd.pt", "odd"),
        ("model.safetensors", None),
        ("step-40", None),
    ):
        same(clean, dict(chosen(convert.read(tmp_path / name), key).tensors))


def test_which_part_is_the_model_is_not_guessed(tmp_path: Path) -> None:
    """Where several parts might be it, the user is told which there are."""
    state = {"generator": {"w": torch.ones(1)}, "critic": {"w": torch.ones(1)}}
    with pytest.raises(ConfigError, match="which of critic, generator is the model"):
        chosen(state, None)
    with pytest.raises(ConfigError, match="there is no actor in it"):
        chosen(state, "actor")


class Planted:
    """Pickles as a call of whatever its writer likes."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self._target),))


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    """A pickle that would run a command is refused: in torch.save's file and in a directory's index."""
    ran = tmp_path / "ran"
    torch.save({"w": torch.ones(1), "bad": Planted(ran)}, tmp_path / "bad.pt")
    with pytest.raises(ConfigError, match="can't be read as tensors and plain values"):
        convert.read(tmp_path / "bad.pt")
    source = _directory(tmp_path / "step-1")
    (source / ".metadata").write_bytes(pickle.dumps(Planted(ran)))
    with pytest.raises(Damaged, match=r"posix\.mkdir, which is not let in"):
        convert.read(source)
    assert not ran.exists()


def test_what_torch_has_saved_is_no_run_of_attach() -> None:
    """A checkpoint of torch.distributed.checkpoint is refused by attach() in words, not by a missing key."""
    with pytest.raises(OutliveError, match=r"saved by torch\.distributed\.checkpoint"):
        completed({"dcp": {}})


def test_floats_become_the_type_that_was_asked_for(tmp_path: Path) -> None:
    """--dtype turns floats, leaves counters alone, and refuses what is no type of floats."""
    save(
        {"model": {"w": torch.tensor([1.0, 1.0009765625]), "n": torch.tensor(3)}},
        storage_writer=FileSystemWriter(tmp_path / "step-1"),
    )
    tensors = chosen(convert.read(tmp_path / "step-1"), None).tensors
    found = convert.cast(tensors, convert.dtype_of("bfloat16"))
    assert found["w"].dtype is torch.bfloat16
    assert found["n"].dtype is torch.int64
    with pytest.raises(ConfigError, match="--dtype int8 is no type of floats"):
        convert.dtype_of("int8")


def test_a_folder_that_a_model_came_in_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``json.py`` or ``torch.py`` beside the files is not taken for a module by the conversion."""
    source, target = tmp_path / "model.pt", tmp_path / "model.safetensors"
    torch.save({"w": torch.ones(3)}, source)
    folder = tmp_path / "downloaded"
    folder.mkdir()
    cast_shadows(folder)
    (folder / "torch.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(folder)
    torch_side.convert(["import", str(source), str(target)], python=None)
    assert torch.equal(convert.read(target)["w"], torch.ones(3))
