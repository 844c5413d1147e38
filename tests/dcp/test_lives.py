"""Who saves which checkpoint, and which one is gone on from: a run's fences hold for torch, too."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

import outlive.dcp
from dcp.states import blank, same, trained
from fakes.servers import shared
from outlive.dcp import session
from outlive.dcp.index import Index
from outlive.errors import Damaged, NotFound, Unavailable
from outlive.objects.interface import Body, ObjectStore
from outlive.objects.location import open_store
from outlive.objects.retry import Retrying
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.lives import read_adoption
from outlive.store.manifest import Manifest
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")


class Process:
    """One training, as far as lives are concerned: sessions are per process."""

    def __init__(self, folder: Path) -> None:
        self._sessions: dict[Any, session.Session] = {}
        self._folder = str(folder)

    def save(self, step: int) -> None:
        self._inside(
            lambda: save(
                {"w": torch.full((8,), float(step))},
                storage_writer=outlive.dcp.Writer(self._folder, run="gpt"),
                checkpoint_id=f"step-{step}",
            )
        )

    def load(self, step: int | None = None) -> float:
        into = {"w": torch.zeros(8)}
        options = {} if step is None else {"checkpoint_id": f"step-{step}"}
        self._inside(lambda: outlive.dcp.load(into, outlive.dcp.Reader(self._folder, run="gpt"), **options))
        return into["w"][0].item()

    def _inside(self, act: Callable[[], object]) -> None:
        session._sessions.clear()
        session._sessions.update(self._sessions)
        try:
            act()
        finally:
            self._sessions = dict(session._sessions)
            session._sessions.clear()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


def test_who_saves_elsewhere_is_superseded(tmp_path: Path, store: ObjectStore) -> None:
    """Once another process has saved the run, the first one can save no more, and is not the newest."""
    first, second = Process(tmp_path), Process(tmp_path)
    first.save(1)
    assert second.load() == 1
    second.save(2)
    with pytest.raises(CheckpointException, match=r"life 1 of run gpt .* is superseded by life 2"):
        first.save(10)
    assert Process(tmp_path).load() == 2
    assert checkpoints(store, "gpt")[0] == CheckpointId(2, 2)


def test_a_save_between_load_and_first_save_is_not_lost(tmp_path: Path) -> None:
    """Who loaded what is no longer the newest is refused, not let over the checkpoint that came meanwhile."""
    first, second = Process(tmp_path), Process(tmp_path)
    first.save(1)
    second.load()
    first.save(2)
    with pytest.raises(CheckpointException, match=r"run gpt in .* is at 000001-000000000002"):
        second.save(2)
    assert Process(tmp_path).load() == 2


@pytest.mark.parametrize("part", ["/chunks/", "/checkpoints/"])
def test_a_save_that_fails_is_none_and_the_next_one_is_whole(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A store that goes away leaves no checkpoint, the training goes on, and its next save is complete."""
    process = Process(tmp_path)
    process.save(1)
    with monkeypatch.context() as broken:
        put = Retrying.put

        def away(store: Retrying, key: str, body: Body, *, create_only: bool = False) -> None:
            if part in key:
                raise Unavailable("the store went away")
            put(store, key, body, create_only=create_only)

        broken.setattr(Retrying, "put", away)
        with pytest.raises(CheckpointException, match="the store went away"):
            process.save(2)
    assert checkpoints(store, "gpt") == [CheckpointId(1, 1)]
    process.save(2)
    process.save(3)
    for step in (2, 3):
        assert verify(store, read_manifest(store, "gpt", CheckpointId(1, step))).ok
    assert Process(tmp_path).load() == 3


def test_one_run_is_one_life_however_its_place_is_written(tmp_path: Path, store: ObjectStore) -> None:
    """Reader and writer know of each other although one of them names the store in another way."""
    Process(tmp_path).save(1)
    outlive.dcp.load({"w": torch.zeros(8)}, outlive.dcp.Reader(f"file://{tmp_path}/", run="gpt"))
    save({"w": torch.ones(8)}, storage_writer=outlive.dcp.Writer(str(tmp_path), run="gpt"), checkpoint_id="2")
    assert read_manifest(store, "gpt", CheckpointId(2, 2)).parent == CheckpointId(1, 1)


def test_a_writer_takes_what_was_loaded_to_another_process(tmp_path: Path, store: ObjectStore) -> None:
    """async_save may save in another process, which gets the writer alone: it knows what was loaded."""
    Process(tmp_path).save(1)
    outlive.dcp.load({"w": torch.zeros(8)}, outlive.dcp.Reader(str(tmp_path), run="gpt"))
    sent = pickle.dumps(outlive.dcp.Writer(str(tmp_path), run="gpt"))
    session._sessions.clear()  # another process
    save({"w": torch.ones(8)}, storage_writer=pickle.loads(sent), checkpoint_id="2")  # noqa: S301 - our own
    assert read_manifest(store, "gpt", CheckpointId(2, 2)).parent == CheckpointId(1, 1)


def test_going_back_by_the_step_is_a_rewind(tmp_path: Path, store: ObjectStore) -> None:
    """An older step that was loaded by its number abandons what is newer, and the record says so."""
    first, second = Process(tmp_path), Process(tmp_path)
    for step in (1, 2, 3):
        first.save(step)
    assert second.load(step=2) == 2
    second.save(3)
    adoption = read_adoption(store, "gpt", 2)
    assert adoption is not None
    assert (adoption.checkpoint, adoption.rewind) == (CheckpointId(1, 2), True)
    assert checkpoints(store, "gpt") == [CheckpointId(2, 3), CheckpointId(1, 2), CheckpointId(1, 1)]


@pytest.mark.parametrize("how", ["missing", "altered", "manifest"])
def test_what_is_damaged_is_passed_over(tmp_path: Path, store: ObjectStore, how: str) -> None:
    """The newest whole checkpoint is loaded, and the training goes on from it without anybody's help."""
    Process(tmp_path).save(1)
    first = Process(tmp_path)
    first.load()
    first.save(2)
    newest = read_manifest(store, "gpt", CheckpointId(2, 2))
    chunk = newest.parts[0].chunks[0]
    path = tmp_path / layout.chunk("gpt", chunk.home, blake3=chunk.blake3)
    if how == "manifest":
        path = tmp_path / layout.manifest("gpt", newest.id)
    path.chmod(0o600)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[::-1])
    second = Process(tmp_path)
    assert second.load() == 1
    second.save(2)
    assert Process(tmp_path).load() == 2
    assert checkpoints(store, "gpt")[0] == CheckpointId(3, 2)


def test_torchs_own_load_passes_over_what_is_missing(tmp_path: Path, store: ObjectStore) -> None:
    """Without our load, too, a checkpoint that lacks a chunk is not begun; an altered one is an error."""
    process = Process(tmp_path)
    process.save(1)
    process.save(2)
    manifest = read_manifest(store, "gpt", CheckpointId(1, 2))
    chunk = manifest.parts[0].chunks[0]
    path = tmp_path / layout.chunk("gpt", chunk.home, blake3=chunk.blake3)
    path.chmod(0o600)
    whole = path.read_bytes()
    path.write_bytes(whole[::-1])
    into = {"w": torch.zeros(8)}
    reader = outlive.dcp.Reader(str(tmp_path), run="gpt")
    with pytest.raises(CheckpointException, match=r"altered"):
        load(into, storage_reader=reader)
    assert into["w"].tolist() == [0] * 8
    path.unlink()
    load(into, storage_reader=reader)
    assert into["w"].tolist() == [1] * 8


def test_a_rank_follows_the_coordinator(tmp_path: Path) -> None:
    """A rank that looked before the newest checkpoint came reads the one that the coordinator names."""
    process = Process(tmp_path)
    process.save(1)
    reader = outlive.dcp.Reader(str(tmp_path), run="gpt")
    planner = DefaultLoadPlanner()
    into = {"w": torch.zeros(8)}
    planner.set_up_planner(into, reader.read_metadata(), is_coordinator=False)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    assert plan.storage_data == CheckpointId(1, 1)
    process.save(2)
    reader.read_data(replace(plan, storage_data=CheckpointId(1, 2)), planner)
    assert into["w"].tolist() == [2] * 8


def test_a_step_that_is_not_there_is_no_beginning(tmp_path: Path) -> None:
    """Who names a step that nobody saved is told so, and does not start from nothing without a word."""
    process = Process(tmp_path)
    process.save(1)
    with pytest.raises(NotFound, match=r"run gpt in .* has no checkpoint of step 7"):
        process.load(step=7)


def test_what_the_first_rank_can_not_do_all_ranks_hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that the first rank can't ask is an error on every rank: nobody waits for ever."""

    def away(reader: outlive.dcp.Reader) -> list[CheckpointId]:
        raise Unavailable("the store went away")

    said: list[object] = []
    monkeypatch.setattr(outlive.dcp.Reader, "wanted", away)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda box, src, group: said.extend(box))
    with pytest.raises(Unavailable, match="the store went away"):
        outlive.dcp.load({"w": torch.zeros(8)}, outlive.dcp.Reader(str(tmp_path), run="gpt"))
    assert isinstance(said[0], Unavailable)


def test_an_empty_run_touches_nothing(tmp_path: Path) -> None:
    """Where nothing was saved, our load says so with None, and torch's with an error that says what to do."""
    into = {"w": torch.zeros(8)}
    reader = outlive.dcp.Reader(str(tmp_path / "none"), run="gpt")
    (tmp_path / "none").mkdir()
    assert outlive.dcp.load(into, reader) is None
    with pytest.raises(CheckpointException, match=r"run gpt in .* has no checkpoint"):
        load(into, storage_reader=reader)


def test_a_sealed_store_is_sealed_for_torch_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key in the environment nothing readable is stored, and without it nothing is loaded."""
    from outlive.dcp import place

    place._opened.cache_clear()
    monkeypatch.setenv("OUTLIVE_ENCRYPTION_KEY", "ab" * 32)
    process = Process(tmp_path)
    process.save(1)
    assert Process(tmp_path).load() == 1
    assert all(path.read_bytes()[:4] == b"OLE1" for path in (tmp_path / "gpt").rglob("*") if path.is_file())
    monkeypatch.delenv("OUTLIVE_ENCRYPTION_KEY")
    place._opened.cache_clear()
    with pytest.raises((CheckpointException, outlive.errors.OutliveError), match="encrypted"):
        Process(tmp_path).load()
    place._opened.cache_clear()


def test_a_bucket_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and endpoint come from the environment, as for everything else; a state comes back from S3."""
    server = shared("moto")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    state = trained()
    location = server.location("dcp")
    save(state, storage_writer=outlive.dcp.Writer(location, run="gpt"), checkpoint_id="2")
    into = blank(state)
    assert outlive.dcp.load(into, outlive.dcp.Reader(location, run="gpt")) == CheckpointId(1, 2)
    same(state["model"], into["model"])
    store = open_store(location)
    assert verify(store, read_manifest(store, "gpt", CheckpointId(1, 2))).ok


def _index(tmp_path: Path) -> tuple[dict[str, Any], Manifest]:
    store = open_store(str(tmp_path))
    save({"w": torch.zeros(4, 4)}, storage_writer=outlive.dcp.Writer(str(tmp_path), run="gpt"))
    manifest = read_manifest(store, "gpt", checkpoints(store, "gpt")[0])
    blob = manifest.parts[0].values
    raw = store.get(layout.chunk("gpt", blob.home, blake3=blob.blake3), at_most=blob.bytes)
    return json.loads(raw)["dcp"]["index"], manifest


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("dtype", "object"),
        ("size", [4, -4]),
        ("size", [4]),
        ("size", "44"),
        ("pieces", [[1, 0, [0, 0], [4, 4]]]),
        ("pieces", [[0, 64, [0, 0], [4, 4]]]),
        ("pieces", [[0, 0, [1, 0], [4, 4]]]),
        ("pieces", [[0, 0, [0], [4, 4]]]),
        ("pieces", [[0, -64, [0, 0], [4, 4]]]),
        ("pieces", [[0, True, [0, 0], [4, 4]]]),
        ("pieces", [None]),
    ],
)
def test_an_index_that_lies_is_damage(tmp_path: Path, member: str, value: object) -> None:
    """Pieces outside their part or their tensor, unknown types: each is refused before anything is read."""
    document, manifest = _index(tmp_path)
    assert Index.decode(document, manifest, where="it").tensors["w"].size == (4, 4)
    document["tensors"]["w"][member] = value
    with pytest.raises(Damaged):
        Index.decode(document, manifest, where="it")
