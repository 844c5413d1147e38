"""A state in memory as descriptors: what comes back, what is refused, what a training may still touch."""

import io
import json
import os
import queue
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes.stores import BlockingStore
from fakes.systemd import Systemd
from outlive.objects.memory import MemoryStore
from outlive.staging import memory
from outlive.staging.arena import Arena, Notes, notes_to_fd
from outlive.staging.channel import Channel
from outlive.staging.control import ControlPage
from outlive.staging.messages import ArenaOffer, Hello, SnapshotTaken
from outlive.store.commit import Committer
from outlive.store.lives import Identity, Life, claim
from outlive.store.newest import checkpoints
from outlive_agent.conversation import STILL_OURS, Conversation
from outlive_agent.events import Event, Uploaded
from outlive_agent.fdstore import FdStore, inherited
from outlive_agent.held import Held
from outlive_agent.history import History
from outlive_agent.journal import Journal
from outlive_agent.kept_memory import KeptMemory
from outlive_agent.left import Left, Owner, descriptors, find
from outlive_agent.notify import Notify
from outlive_agent.saves import Saves
from outlive_agent.settings.values import Every

OWNER = Owner(store="s3://bucket/runs", run="t", boot="this one")
LIFE = Life(run="t", number=3, nonce="ab")
TABLE = json.dumps(
    {
        "format": "outlive/table",
        "version": 1,
        "bytes": 8,
        "tensors": [
            {
                "path": "count",
                "dtype": "int64",
                "shape": [1],
                "offset": 0,
                "bytes": 8,
                "device": "cpu",
                "group": 0,
            }
        ],
    }
).encode()


def _held(*, step: int = 20, number: int = 2, life: int = 3, page: "ControlPage | None" = None) -> Held:
    arena = Arena.create(8)
    arena.view[:] = step.to_bytes(8, "little")
    if page is not None:
        page.begin(1, number)
    return Held(
        arena=arena,
        notes=Notes(TABLE, b"{}"),
        page=page,
        life=life,
        step=step,
        epoch=1,
        bytes=8,
        number=number,
        slot=1,
        reason="notice",
        metrics={"loss": 0.5},
        environment={"torch": "2.13"},
        copy_seconds=0.25,
        stop=True,
    )


@pytest.fixture
def page() -> Iterator[ControlPage]:
    """Of the conversation in which the snapshot was taken."""
    page = ControlPage.create()
    yield page
    page.close()


def test_everything_comes_back(page: ControlPage) -> None:
    """The state, and all that was said of it, is the same for the next agent, in the same memory."""
    held = _held(page=page)
    left, reasons = find(descriptors(held, life=LIFE, owner=OWNER), OWNER)
    assert left is not None
    assert (LIFE, []) == (left.life, reasons)
    again = left.held
    for name in ("notes", "life", "step", "epoch", "bytes", "number", "slot", "reason", "stop"):
        assert getattr(held, name) == getattr(again, name)
    assert (held.metrics, held.environment, 0.25) == (again.metrics, again.environment, again.copy_seconds)
    held.arena.view[:1] = b"x"
    assert b"x" == bytes(again.arena.view[:1])
    assert again.intact
    assert again.ours
    page.free(1, 2)
    assert not again.ours
    page.begin(1, 3)
    assert not again.intact


def test_newest_whole_one_is_found(page: ControlPage) -> None:
    """Of several states the newest that was not copied over is taken, whatever the order."""
    fds = {
        **descriptors(_held(step=30, page=page), life=LIFE, owner=OWNER),
        **descriptors(_held(step=10), life=LIFE, owner=OWNER),
        **descriptors(_held(step=20), life=LIFE, owner=OWNER),
    }
    page.begin(1, 3)
    left, reasons = find(fds, OWNER)
    assert left is not None
    assert 20 == left.held.step
    assert ["step 30 of life 3: a newer state was being copied over it"] == reasons


def _rewritten(change: "Callable[[dict[str, Any]], object]") -> "Mapping[str, int]":
    files = descriptors(_held(), life=LIFE, owner=OWNER)
    *others, record = files
    first, _, rest = memory.read_final(files[record], at_most=1 << 20).partition(b"\n")
    header = json.loads(first)
    change(header)
    changed = memory.create_final("x", json.dumps(header).encode() + b"\n" + rest)
    return {**{name: files[name] for name in others}, record: changed}


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(boot="an earlier one"),
        lambda header: header.update(run="u"),
        lambda header: header.update(store="s3://bucket/others"),
        lambda header: header.update(version=2),
        lambda header: header.update(life=-1),
        lambda header: header.update(life=True),
        lambda header: header.update(of="3"),
        lambda header: header.pop("nonce"),
        lambda header: header.update(arena="arena-1"),
        lambda header: header.update(arena=["x"]),
        lambda header: header.update(page="state-1"),
        lambda header: header.update(page=header["arena"]),
        lambda header: header.clear(),
    ],
)
def test_what_is_not_ours_is_refused(change: "Callable[[dict[str, Any]], object]") -> None:
    """A record of another boot, run or store, or one that makes no sense, is no state."""
    left, reasons = find(_rewritten(change), OWNER)
    assert left is None
    assert 1 == len(reasons)


def _record(content: bytes, *, final: bool = True) -> int:
    if final:
        return memory.create_final("x", content)
    fd = memory.create("x", len(content))
    os.pwrite(fd, content, 0)
    return fd


def test_hostile_descriptors_are_refused() -> None:
    """Records that can still be changed, are cut short, are no JSON, or no memory at all: each is refused."""
    files = descriptors(_held(), life=LIFE, owner=OWNER)
    *others, record = files
    whole = memory.read_final(files[record], at_most=1 << 20)
    deep = b"[" * 100_000 + b"\n"
    bad = [_record(whole, final=False), _record(whole[:-1]), _record(b""), _record(b"\n\n"), _record(deep)]
    one, other = socket.socketpair()
    bad += [os.open("/dev/null", os.O_RDONLY), os.open("/", os.O_RDONLY), one.detach()]
    small = Arena.create(4)
    for fd in bad:
        left, reasons = find({**{name: files[name] for name in others}, record: fd}, OWNER)
        assert left is None
        assert 1 == len(reasons), fd
    left, _ = find({others[0]: small.fd, record: files[record]}, OWNER)
    assert left is None
    assert (None, []) == find({"arena-1": bad[0]}, OWNER)
    assert None is find(files, Owner(store=OWNER.store, run="t", boot=""))[0]
    other.close()
    for fd in bad:
        os.close(fd)


def test_descriptors_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the process that systemd meant takes them, and no program that it starts hears of them."""
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "X": "y"}
    assert {} == inherited(environ)
    assert {"X": "y"} == environ
    for count in ("", "-1", "x", "99999999999999999999"):
        assert {} == inherited({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """With a short path."""
    systemd = Systemd(f"\0outlive-test-{os.getpid()}-{id(tmp_path)}")
    yield systemd
    systemd.close()


@pytest.fixture
def store(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Iterator[FdStore]:
    """A store at which that systemd listens."""
    address = "@" + systemd.path.removeprefix("\0")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify = Notify({"NOTIFY_SOCKET": address})
    yield FdStore(notify, names=set())
    notify.close()


def test_new_state_is_there_before_the_old_one_goes(systemd: Systemd, store: FdStore) -> None:
    """At every moment systemd has a whole state; an arena that serves both is given once, and stays."""
    kept = KeptMemory(store, OWNER, journal=Journal(io.StringIO()))
    kept.belongs_to(LIFE)
    first = _held(step=10)
    kept.keep(first)
    second = Held(arena=first.arena, notes=first.notes, life=3, step=20, epoch=1, bytes=8)
    kept.keep(second)
    systemd.wait_for("FDSTOREREMOVE=1")
    told = [line for line in systemd.heard if line.startswith("FDSTORE")]
    assert ["FDSTORE=1", "FDSTORE=1", "FDSTORE=1", "FDSTOREREMOVE=1"] == told
    assert ["FDPOLL=0"] * 3 == [line for line in systemd.heard if line.startswith("FDPOLL")]
    left, _ = find(systemd.stored, OWNER)
    assert left is not None
    assert 20 == left.held.step
    kept.keep(None)
    systemd.wait_for("FDSTOREREMOVE=1", count=3)
    assert {} == systemd.stored
    assert kept.empty


class Scene:
    """An agent that found something in memory, and a training that outlived the agent before it."""

    def __init__(self, store: FdStore) -> None:
        self.bucket = BlockingStore(MemoryStore(), stops=lambda action, key: action == "put")
        self.bucket.go.set()
        self.life = claim(self.bucket, "t", identity=Identity.here(()))
        self.old_page = ControlPage.create()
        self.held = _held(page=self.old_page, life=self.life.number)
        self.journal = io.StringIO()
        journal = Journal(self.journal)
        kept = KeptMemory(store, OWNER, journal=journal)
        kept.belongs_to(self.life)
        kept.left = Left(life=self.life, held=self.held)
        self.saves = Saves(Every(), journal=journal, memory=kept)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._history = History(self.bucket, self.life, journal=journal)
        ours, self.trainer = Channel.pair()
        self.talk = Conversation(ours, Hello(pid=os.getpid()), life=self.life.number)

    def trainer_comes(self) -> None:
        self.saves.carry_over(self.talk)
        self.saves.trainer_started(self.talk, self.saves.newest)

    def snapshot(self, *, slot: int, step: int, number: int = 1) -> None:
        arena = Arena.create(8)
        self.talk.offered(ArenaOffer(arena=slot, bytes=8), (os.dup(arena.fd),))
        self.talk.page.begin(slot, number)
        packet = SnapshotTaken(
            number=number, arena=slot, step=step, reason="signal", bytes=8, table=len(TABLE), values=2
        )
        self.saves.accept(self.talk.taken(packet, (notes_to_fd(TABLE, b"{}"),)))

    def store_answers(self, *, left: bool) -> None:
        committer = Committer(self.bucket, self.life, parent=None)
        self.saves.open(committer, resumed=None, post=self.events.put, history=self._history)
        self.saves.begin(self.held if left else None, left=left)

    def uploaded(self) -> int:
        event = self.events.get(timeout=10)
        assert isinstance(event, Uploaded), event
        self.saves.uploaded(event)
        return event.held.step

    def close(self) -> None:
        self.bucket.go.set()
        self.saves.close()
        self._history.close(timeout=1)
        self.trainer.close()
        self.talk.close()


@pytest.fixture
def scene(store: FdStore) -> Iterator[Scene]:
    """Before the training has come back, and before the store has answered."""
    scene = Scene(store)
    yield scene
    scene.close()


def test_running_training_can_not_copy_over_what_is_not_saved(scene: Scene) -> None:
    """The arena is the trainer's again only once its snapshot is a checkpoint."""
    scene.trainer_comes()
    assert (STILL_OURS, 0) == (scene.talk.page.freed(1), scene.talk.page.freed(0))
    scene.store_answers(left=True)
    assert 20 == scene.uploaded()
    assert 0 == scene.talk.page.freed(1)
    assert [20] == [found.step for found in checkpoints(scene.bucket, "t")]
    newest = scene.saves.newest
    assert newest is not None
    assert newest.intact
    scene.talk.page.begin(1, 1)  # on the page of the new conversation: the old one is not looked at any more
    assert not newest.intact


def test_memory_that_was_given_back_is_not_sent(scene: Scene) -> None:
    """A save had failed and the arena was the trainer's: nothing is read from it while that may copy."""
    scene.old_page.free(1, scene.held.number)
    scene.trainer_comes()
    assert 0 == scene.talk.page.freed(1)
    scene.store_answers(left=True)
    assert scene.saves.progress is None
    scene.talk.page.begin(1, 1)
    assert scene.saves.memory is None


def test_snapshot_that_comes_before_the_store_answers(scene: Scene) -> None:
    """It is taken at once, and is what is saved: the older one that lay in memory is not needed then."""
    scene.trainer_comes()
    scene.snapshot(slot=0, step=25)
    assert scene.saves.undecided
    assert scene.saves.rescue(0.0), "nobody may end the life while the store has not answered"
    scene.store_answers(left=True)
    assert 25 == scene.uploaded()
    assert [25] == [found.step for found in checkpoints(scene.bucket, "t")]
    assert (1, 0) == (scene.talk.page.freed(0), scene.talk.page.freed(1))


def test_two_snapshots_before_the_store_answers(scene: Scene) -> None:
    """The newer one takes the place of the older, whose arena is the trainer's again."""
    scene.trainer_comes()
    scene.snapshot(slot=0, step=25)
    scene.talk.page.free(1, 0)
    scene.snapshot(slot=1, step=30, number=2)
    assert 1 == scene.talk.page.freed(0)
    scene.store_answers(left=False)
    assert 30 == scene.uploaded()
    assert [30] == [found.step for found in checkpoints(scene.bucket, "t")]


def test_memory_that_the_store_has_no_use_for(scene: Scene) -> None:
    """Where the store has something newer the arena is the trainer's again, and nothing is sent."""
    scene.trainer_comes()
    scene.store_answers(left=False)
    assert 0 == scene.talk.page.freed(1)
    assert scene.saves.newest is None
    assert scene.saves.progress is None
