"""What torch.distributed.checkpoint saves to a store comes back as from a directory of its own."""

import datetime
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

import outlive.dcp
from dcp.states import blank, same, through_outlive, through_torch, trained
from fakes.checkpoints import keys
from outlive.dcp import session
from outlive.dcp.contents import Contents, table_of
from outlive.objects.location import open_store
from outlive.store.layout import CheckpointId
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")


def _writer(folder: Path, **options: Any) -> outlive.dcp.Writer:
    return outlive.dcp.Writer(str(folder), run="gpt", **options)


def _reader(folder: Path, **options: Any) -> outlive.dcp.Reader:
    return outlive.dcp.Reader(str(folder), run="gpt", **options)


def test_a_state_comes_back_as_from_a_directory(tmp_path: Path) -> None:
    """Tensors of every kind, optimizer, scheduler, plain values: all as torch's own FileSystem gives them."""
    state = trained()
    theirs = through_torch(state, tmp_path / "torch")
    ours = through_outlive(state, tmp_path / "outlive")
    same(theirs, ours)
    for name in ("model", "optimizer", "train", "odd"):  # of a Counter torch itself makes a dict
        same(state[name], ours[name])


def test_an_asynchronous_save_is_a_checkpoint_of_its_moment(tmp_path: Path) -> None:
    """async_save keeps the state of the call, whatever the training does before the upload is done."""
    state = trained()
    kept = trained()
    pending = cast(Any, async_save(state, storage_writer=_writer(tmp_path), checkpoint_id="step-2"))
    with torch.no_grad():
        state["model"]["0.weight"].zero_()
    pending.result()
    found = blank(state)
    assert outlive.dcp.load(found, _reader(tmp_path)) == CheckpointId(1, 2)
    same(kept["model"], found["model"])


def test_a_state_is_loaded_into_other_dtypes_and_strides(tmp_path: Path) -> None:
    """Targets that are no plain memory of the same dtype are filled through torch."""
    save({"w": torch.arange(12.0).view(3, 4)}, storage_writer=_writer(tmp_path))
    into = {"w": torch.zeros(4, 3, dtype=torch.float64).t()}
    load(into, storage_reader=_reader(tmp_path))
    assert into["w"].tolist() == torch.arange(12.0).view(3, 4).tolist()


def test_the_step_is_the_last_number_of_the_name(tmp_path: Path) -> None:
    """checkpoint_id names the step, at saving and at loading; without one, steps are counted."""
    writer = _writer(tmp_path)
    for step in (10, 20):
        save({"w": torch.tensor(step)}, storage_writer=writer, checkpoint_id=f"runs/2026/step-{step}")
    save({"w": torch.tensor(21)}, storage_writer=writer)
    assert writer.saved == CheckpointId(1, 21)
    for name, step in ((None, 21), ("step-10", 10)):
        into = {"w": torch.tensor(0)}
        load(into, storage_reader=_reader(tmp_path), checkpoint_id=name)
        assert into["w"].item() == step


def test_a_life_goes_only_forward(tmp_path: Path) -> None:
    """An earlier step than the last one is refused before anything is sent: nobody would ever find it."""
    writer = _writer(tmp_path)
    save({"w": torch.tensor(1)}, storage_writer=writer, checkpoint_id="5")
    before = keys(open_store(str(tmp_path)))
    with pytest.raises(CheckpointException, match="has saved step 5 already"):
        save({"w": torch.tensor(1)}, storage_writer=writer, checkpoint_id="4")
    assert keys(open_store(str(tmp_path))) == before


def test_what_did_not_change_is_not_sent_again(tmp_path: Path) -> None:
    """A second checkpoint holds new chunks for what is new only, and names the rest under the first one."""
    large = torch.randn(9 * 2**20)  # one whole chunk and a tail
    writer = _writer(tmp_path)
    save({"a": large, "b": torch.tensor(1)}, storage_writer=writer, checkpoint_id="1")
    save({"a": large, "b": torch.tensor(2)}, storage_writer=writer, checkpoint_id="2")
    store = open_store(str(tmp_path))
    part = read_manifest(store, "gpt", CheckpointId(1, 2)).parts[0]
    assert [chunk.home.step for chunk in part.chunks] == [1, 1, 2]
    assert part.chunks[0].bytes == 32 * 2**20


def test_only_what_the_last_part_names_is_relied_on(tmp_path: Path) -> None:
    """Content that was let go and comes back is sent again: its old chunk may have been removed meanwhile."""
    writer = _writer(tmp_path)
    for step, value in ((1, 0.0), (2, 1.0), (3, 0.0)):
        save({"w": torch.full((8,), value)}, storage_writer=writer, checkpoint_id=str(step))
    manifest = read_manifest(open_store(str(tmp_path)), "gpt", CheckpointId(1, 3))
    assert manifest.parts[0].chunks[0].home == CheckpointId(1, 3)


def test_the_next_process_sends_only_what_is_new(tmp_path: Path) -> None:
    """Who goes on from a checkpoint relies on its chunks from its first save on, in a life of its own."""
    large = torch.randn(9 * 2**20)
    save({"a": large, "b": torch.tensor(1)}, storage_writer=_writer(tmp_path), checkpoint_id="1")
    session._sessions.clear()  # another process
    into = {"a": torch.empty(9 * 2**20), "b": torch.tensor(0)}
    assert outlive.dcp.load(into, _reader(tmp_path)) == CheckpointId(1, 1)
    into["b"] += 1
    save(into, storage_writer=_writer(tmp_path), checkpoint_id="2")
    manifest = read_manifest(open_store(str(tmp_path)), "gpt", CheckpointId(2, 2))
    assert [chunk.home.life for chunk in manifest.parts[0].chunks] == [1, 1, 2]
    assert manifest.parent == CheckpointId(1, 1)


def test_a_planner_that_caches_its_plans_saves_each_step(tmp_path: Path) -> None:
    """Ranks may get their first plan again; each checkpoint has a step of its own all the same."""
    writer = _writer(tmp_path)
    for step in (1, 2, 3):
        planner = DefaultSavePlanner(enable_plan_caching=True)
        save({"w": torch.full((4,), step)}, storage_writer=writer, planner=planner)
    store = open_store(str(tmp_path))
    assert [found.step for found in checkpoints(store, "gpt")] == [3, 2, 1]
    for found in checkpoints(store, "gpt"):
        manifest = read_manifest(store, "gpt", found)
        assert verify(store, manifest).ok
        assert manifest.parts[0].chunks[0].home == found


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """keep=2 lets older checkpoints go as the training saves."""
    writer = _writer(tmp_path, keep=2)
    for step in range(1, 6):
        save({"w": torch.tensor(step)}, storage_writer=writer)
    assert [found.step for found in checkpoints(open_store(str(tmp_path)), "gpt")] == [5, 4]


class Strange:
    """What the closed set of types does not have."""


def test_what_needs_a_pickle_is_refused_at_save(tmp_path: Path) -> None:
    """A value outside the closed set is named and nothing is committed; it is not pickled on the quiet."""
    state = {"train": {"when": datetime.timezone.utc, "fine": 1}, "other": Strange()}
    with pytest.raises(CheckpointException) as caught:
        save(state, storage_writer=_writer(tmp_path))
    text = str(caught.value.failures[0][0])
    assert "train.when: object of type datetime.timezone" in text
    assert "other: object of type" in text
    assert "fine" not in text
    assert not checkpoints(open_store(str(tmp_path)), "gpt")


def test_a_pickle_is_run_only_where_both_sides_allow_it(tmp_path: Path) -> None:
    """allow_pickle=True keeps what torch.save made; a reader that does not refuses, and touches nothing."""
    state = {"w": torch.ones(2), "when": datetime.timezone.utc}
    save(state, storage_writer=_writer(tmp_path, allow_pickle=True))
    into: dict[str, Any] = {"w": torch.zeros(2), "when": None}
    with pytest.raises(CheckpointException, match="when: kept as a pickle"):
        load(into, storage_reader=_reader(tmp_path))
    assert into["w"].tolist() == [0, 0]
    load(into, storage_reader=_reader(tmp_path, allow_pickle=True))
    assert into["when"] is datetime.timezone.utc


def test_chunks_of_many_tensors_are_put_together_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, large, empty and strided tensors: the chunks are the image that the table says."""
    from outlive.dcp import contents
    from outlive.store import chunks

    monkeypatch.setattr(contents, "cut", lambda table: chunks.cut(table, chunk_bytes=256))
    torch.manual_seed(0)
    shapes = [(3,), (0, 2), (40, 7), (5, 5), (), (64,), (65,), (1, 300)]
    state = {str(i): torch.randn(shape) for i, shape in enumerate(shapes)}
    state["2"] = torch.randn(7, 40).t()
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=True)
    items = planner.create_local_plan().items
    table = table_of(items)
    made = Contents(table, items, planner)
    image = b"".join(bytes(made.chunk(number)) for number in range(len(made.pieces)))
    assert not made._tensors
    assert len(image) == table.bytes
    for entry in table.tensors:
        wanted = state[entry.path].contiguous().reshape(-1).view(torch.uint8)
        assert image[entry.offset : entry.offset + entry.bytes] == bytes(wanted.numpy())
