"""What systemd keeps, and what a training that outlived its agent may still touch."""

import io
import os
import queue
import select
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fakes.states import LIFE, OWNER, TABLE, held_state
from fakes.stores import BlockingStore
from fakes.systemd import Systemd
from outlive.objects.memory import MemoryStore
from outlive.staging.arena import Arena, notes_to_fd
from outlive.staging.channel import Channel, Received
from outlive.staging.control import ControlPage
from outlive.staging.messages import Accepted, ArenaOffer, Hello, SnapshotTaken, Welcome
from outlive.store.commit import Committer
from outlive.store.lives import Identity, claim
from outlive.store.newest import checkpoints
from outlive.store.retention import Keep
from outlive_agent.beginning import Beginning
from outlive_agent.conversation import STILL_OURS, Conversation
from outlive_agent.events import Event, PacketCame, TrainerCame, Uploaded
from outlive_agent.fdstore import FdStore
from outlive_agent.held import Held
from outlive_agent.history import History
from outlive_agent.job import Job, Place
from outlive_agent.journal import Journal
from outlive_agent.kept_memory import KeptMemory
from outlive_agent.left import Left, find
from outlive_agent.notify import Notify
from outlive_agent.runtime import DrainLock
from outlive_agent.saves import Saves
from outlive_agent.settings.values import Every
from outlive_agent.training import Training


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
    first = held_state(step=10)
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


def test_accepted_is_said_once_systemd_has_it(systemd: Systemd, store: FdStore, tmp_path: Path) -> None:
    """A trainer that hears `accepted` may end: by then the agent may die as well, and nothing is lost."""
    ours, trainer = Channel.pair()
    heard_before: list[bool] = []

    class Watched(FdStore):
        def hold(self, wanted: Mapping[str, int]) -> None:
            heard_before.append(bool(select.select([trainer], [], [], 0)[0]))
            store.hold(wanted)

    journal = Journal(io.StringIO())
    kept = KeptMemory(Watched(Notify({}), names=set()), OWNER, journal=journal)
    kept.belongs_to(LIFE)
    training = _training(tmp_path, Saves(Every(), journal=journal, memory=kept), journal=journal)
    training.life_claimed(LIFE)
    hello = Hello(pid=os.getpid(), life=LIFE.number, nonce=LIFE.nonce)
    training.came(TrainerCame(channel=ours, hello=hello))
    assert isinstance(trainer.receive(1).message, Welcome)
    arena = Arena.create(8)
    packet = SnapshotTaken(number=1, arena=0, step=7, reason="signal", bytes=8, table=len(TABLE), values=2)
    offer = Received(ArenaOffer(arena=0, bytes=8), (os.dup(arena.fd),))
    for received in (offer, Received(packet, (notes_to_fd(TABLE, b"{}"),))):
        training.connected.page.begin(0, 1) if training.connected else None
        training.packet(PacketCame(channel=ours, received=received))
    assert Accepted(number=1) == trainer.receive(1).message
    assert [False] == heard_before
    systemd.wait_for("FDSTORE=1", count=3)
    left, _ = find(systemd.stored, OWNER)
    assert left is not None
    assert 7 == left.held.step
    trainer.close()
    training.hang_up()


def _training(folder: Path, saves: Saves, *, journal: Journal) -> Training:
    place = Place(
        store=MemoryStore(),
        closing=threading.Event(),
        directory=folder,
        lock=DrainLock(folder, OWNER.store, run="t"),
        journal=journal,
        notify=Notify({}),
    )
    job = Job(
        run="t",
        location=OWNER.store,
        place=OWNER.store,
        command=(),
        every=Every(),
        keep=Keep(),
        stop_grace_seconds=1,
        restarts=0,
        taken_over=LIFE,
    )
    beginning = Beginning(job, place, post=lambda event: None, identity=Identity.here(()))
    return Training(job, mode="daemon", saves=saves, beginning=beginning, journal=journal)


class Scene:
    """An agent that found something in memory, and a training that outlived the agent before it."""

    def __init__(self, store: FdStore) -> None:
        self.bucket = BlockingStore(MemoryStore(), stops=lambda action, key: action == "put")
        self.bucket.go.set()
        self.life = claim(self.bucket, "t", identity=Identity.here(()))
        self.old_page = ControlPage.create()
        self.held = held_state(page=self.old_page, life=self.life.number)
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
