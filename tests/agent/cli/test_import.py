"""``outlive import`` of what needs no torch: files of safetensors, as the checkpoint a run begins with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from fakes.commands import Cli
from outlive.errors import Damaged, Unavailable
from outlive.objects.interface import ObjectStore
from outlive.store.commit import Committer
from outlive.store.fetch import restore_newest
from outlive.store.safetensors import DTYPES, header, read_header
from outlive_agent.exits import Exit

TENSORS: dict[str, np.ndarray[Any, Any]] = {
    "layer.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer.bias": np.array([1, 2, 3], dtype=np.float16),
    "steps": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.float32),
}


def test_a_file_becomes_the_first_checkpoint_of_a_run(cli: Cli, store: ObjectStore, tmp_path: Path) -> None:
    """Its tensors lie in the checkpoint under the object's name, byte for byte, and come out again."""
    save_file(TENSORS, tmp_path / "in.safetensors")
    said = cli("import", str(tmp_path / "in.safetensors"), "gpt", "--as", "net", "--step", "900", "--json")
    assert (said.code, said.json["step"], said.json["as"], said.json["left"]) == (0, 900, "net", [])
    restored = restore_newest(store, "gpt", lambda size: memoryview(bytearray(size)), on_damaged=_fail)
    assert restored is not None
    assert cli("export", "gpt@900", str(tmp_path / "out.safetensors")).code == 0
    with safe_open(tmp_path / "out.safetensors", framework="numpy") as file:
        assert sorted(file.keys()) == sorted(TENSORS)
        for name, value in TENSORS.items():
            found = file.get_tensor(name)
            assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert "ended, saved" in cli("history", "gpt").out


def test_a_directory_of_files_is_one_model(cli: Cli, store: ObjectStore, tmp_path: Path) -> None:
    """The shards of a model that is kept in several files become one object."""
    for number, name in enumerate(TENSORS):
        save_file({name: TENSORS[name]}, tmp_path / f"model-{number}.safetensors")
    assert cli("import", str(tmp_path), "gpt", "--json").json["bytes"] > 0
    assert json.loads(cli("show", "gpt", "--json").out)["step"] == 0
    shown = cli("show", "gpt").out
    assert "model (module)" in shown
    assert "random generators" not in shown


def test_a_run_that_is_there_is_left_alone(cli: Cli, gpt: ObjectStore, tmp_path: Path) -> None:
    """Importing into a run that has anything is refused, and nothing is written."""
    save_file(TENSORS, tmp_path / "in.safetensors")
    before = [info.key for info in gpt.list("")]
    said = cli("import", str(tmp_path / "in.safetensors"), "gpt")
    assert said.code == Exit.CONFIG
    assert "there is a run gpt" in said.err
    assert before == [info.key for info in gpt.list("")]


def test_an_import_that_failed_can_be_tried_again(
    cli: Cli, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails in the middle leaves a life without a checkpoint; the same command works then."""
    save_file(TENSORS, tmp_path / "in.safetensors")
    with monkeypatch.context() as broken:
        broken.setattr(Committer, "commit", _unavailable)
        assert cli("import", str(tmp_path / "in.safetensors"), "gpt").code == Exit.FAILED
    said = cli("import", str(tmp_path / "in.safetensors"), "gpt", "--json")
    assert (said.code, said.json["life"]) == (0, 2)


def test_without_torch_the_error_says_which_python_lacks_it(cli: Cli, tmp_path: Path) -> None:
    """A format that needs torch, where there is none, is a plain error with the way out."""
    (tmp_path / "model.pt").write_bytes(b"PK\3\4 something of torch")
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n")
    bare.chmod(0o755)
    said = cli("import", str(tmp_path / "model.pt"), "gpt", "--python", str(bare))
    assert said.code == Exit.CONFIG
    assert f"{bare} has torch not installed" in said.err
    assert "--python" in said.err


@pytest.mark.parametrize("cut", [0, 4, 30, -1])
def test_half_a_file_is_damage(tmp_path: Path, cut: int) -> None:
    """A file that ends too soon is refused before anything is made of it."""
    save_file(TENSORS, tmp_path / "in.safetensors")
    whole = (tmp_path / "in.safetensors").read_bytes()
    (tmp_path / "half.safetensors").write_bytes(whole[:cut])
    with pytest.raises(Damaged):
        read_header(tmp_path / "half.safetensors")


@pytest.mark.parametrize(
    "told",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, True]},
        {"dtype": "F32"},
        [],
    ],
)
def test_a_file_that_lies_is_damage(tmp_path: Path, told: object) -> None:
    """Offsets outside the file, another size than the shape's, unknown types: each is refused."""
    text = json.dumps({"w": told}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(Damaged):
        read_header(tmp_path / "w.safetensors")


def test_the_head_that_we_write_is_read_by_others(tmp_path: Path) -> None:
    """Every dtype that the format knows has the name and the size that its own library expects."""
    from safetensors import deserialize

    sizes = {name: (name, (3,), 3 * _item_bytes(name)) for name in DTYPES}
    body = bytes(sum(size for _, _, size in sizes.values()))
    found = dict(deserialize(header(sizes, metadata={}) + body))  # type: ignore[no-untyped-call]
    assert {name: one["dtype"] for name, one in found.items()} == dict(DTYPES)
    (tmp_path / "all.safetensors").write_bytes(header(sizes, metadata={}) + body)
    assert {name: one.dtype for name, one in read_header(tmp_path / "all.safetensors").items()} == {
        name: name for name in DTYPES
    }


def _item_bytes(name: str) -> int:
    if name == "bool" or "float8" in name:
        return 1
    return int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def _unavailable(*anything: object, **more: object) -> None:
    raise Unavailable("the store went away")


def _fail(*anything: object) -> None:
    raise AssertionError(anything)
