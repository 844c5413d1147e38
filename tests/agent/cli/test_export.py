"""``outlive export``: what people take away, read back with the format's own library."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from fakes.checkpoints import begin
from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive.store.commit import Image, Snapshot
from outlive.store.table import TensorEntry, TensorTable

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
SCALE = np.array(2.5, dtype=np.float16)
_VALUES = {
    "objects": {
        "net": {"kind": "module", "fleeting": ["cache"]},
        "adam": {"kind": "optimizer"},
        "ema": {"kind": "object"},
    },
    "state": {"best": 0.5, "patience": 3},
}


@pytest.fixture
def gpt(store: ObjectStore) -> ObjectStore:
    """One checkpoint of a module, a buffer that its state_dict leaves out, and an optimizer."""
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "net/layer.weight": WEIGHT,
        "net/scale": SCALE,
        "net/cache": np.zeros(5, dtype=np.float32),
        "adam/state/layer.weight/exp_avg": WEIGHT * 2,
        "ema/odd": np.zeros(2, dtype=np.complex128),
    }
    image, entries = bytearray(), []
    for group, (path, value) in enumerate(tensors.items()):
        entries.append(
            TensorEntry(
                path=path,
                dtype=str(value.dtype),
                shape=value.shape,
                offset=len(image),
                bytes=value.nbytes,
                device="cpu",
                group=group,
            )
        )
        image += value.tobytes()
        image += bytes(-len(image) % 64)
    table = TensorTable(bytes=len(image), tensors=tuple(entries)).encode()
    begin(store).commit(
        Snapshot(
            step=1200,
            epoch=1,
            reason="interval",
            images=(Image(table=table, values=json.dumps(_VALUES).encode(), image=memoryview(image)),),
        )
    )
    return store


def test_the_model_under_its_own_names(cli: Cli, gpt: ObjectStore, tmp_path: Path) -> None:
    """The file holds what the module's ``load_state_dict`` expects, and nothing else, bit for bit."""
    file = tmp_path / "gpt.safetensors"
    said = cli("export", "gpt@1200", str(file))
    assert said.code == 0
    assert f"{file}: 2 tensors of net, 50 B, from step 1,200 of gpt" in said.out
    with safe_open(file, "numpy") as found:
        assert sorted(found.keys()) == ["layer.weight", "scale"]
        assert np.array_equal(found.get_tensor("layer.weight"), WEIGHT)
        assert found.get_tensor("scale").tobytes() == SCALE.tobytes()
        assert found.metadata() == {"format": "pt", "run": "gpt", "life": "1", "step": "1200"}


def test_all_that_is_kept_is_shown_by_name(cli: Cli, gpt: ObjectStore) -> None:
    """Also what has no tensors, a scheduler or a number, is seen to be in the checkpoint."""
    said = " ".join(cli("show", "gpt").out.split())
    assert "keeps net (module), adam (optimizer), ema, the random generators, the place in the data" in said
    assert "run.state best, patience" in said


def test_chosen_tensors_of_several_objects(cli: Cli, gpt: ObjectStore, tmp_path: Path) -> None:
    """Patterns choose, and names of several objects carry the object's."""
    file = tmp_path / "some.safetensors"
    said = cli("export", "gpt", str(file), "--only", "net/layer*", "--only", "adam/*", "--json")
    assert said.json["tensors"] == ["net.layer.weight", "adam.state/layer.weight/exp_avg"]
    with safe_open(file, "numpy") as found:
        assert np.array_equal(found.get_tensor("adam.state/layer.weight/exp_avg"), WEIGHT * 2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "nosuch/*"], "nothing of gpt at step 1,200 is chosen"),
        (["--only", "ema/*"], "ema/odd is of dtype complex128"),
    ],
)
def test_what_can_not_be_exported(
    cli: Cli, gpt: ObjectStore, tmp_path: Path, arguments: list[str], told: str
) -> None:
    """What is not there, and what the format has no type for, is refused before a file is begun."""
    said = cli("export", "gpt", str(tmp_path / "x" / "none.safetensors"), *arguments)
    assert said.code == 78
    assert told in said.err
    assert "Try:" in said.err


def test_a_file_that_is_there_stays(cli: Cli, gpt: ObjectStore, tmp_path: Path) -> None:
    """Nothing is overwritten unless that is asked for."""
    file = tmp_path / "mine"
    file.write_text("mine")
    assert cli("export", "gpt", str(file)).code == 78
    assert file.read_text() == "mine"
    assert cli("export", "gpt", str(file), "--force").code == 0
    assert file.read_bytes() != b"mine"


def test_an_altered_chunk_leaves_no_file(cli: Cli, gpt: ObjectStore, tmp_path: Path) -> None:
    """A damaged checkpoint is no half-written artifact: nothing appears, and the chunk is named."""
    for path in Path(gpt.location).glob("gpt/chunks/*/*"):
        content = path.read_bytes()
        if WEIGHT.tobytes() in content:
            path.write_bytes(content.replace(WEIGHT.tobytes(), (WEIGHT + 1).tobytes()))
    folder = tmp_path / "out"
    folder.mkdir()
    said = cli("export", "gpt", str(folder / "gpt.safetensors"))
    assert said.code == 1
    assert "is altered" in said.err
    assert list(folder.iterdir()) == []
