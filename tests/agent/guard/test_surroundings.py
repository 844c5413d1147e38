"""Journal, runtime directory, drain lock, flag file and inbox: what is around a guard."""

import io
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from outlive.errors import ConfigError, Superseded, Unavailable
from outlive.objects.interface import ObjectInfo
from outlive.objects.memory import MemoryStore
from outlive.store import layout
from outlive.store.lives import Identity, Life, claim
from outlive.store.requests import put_request
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice
from outlive_agent.runtime import DrainLock, prepare
from outlive_agent.sources.flag_file import WINDOW_SECONDS, FlagFile
from outlive_agent.sources.inbox import MOST_TOLD, Inbox


def test_journal_writes_one_line_an_event() -> None:
    """Whatever an error's text holds, an event is one line, with what to do."""
    stream = io.StringIO()
    journal = Journal(stream)
    journal.info("saved")
    journal.problem("step 10 was not saved", Unavailable("no\nanswer", hint="look at the network"))
    journal.error("over")
    assert stream.getvalue().splitlines() == [
        "outlive: saved",
        "outlive: warning: step 10 was not saved: no answer; look at the network",
        "outlive: error: over",
    ]


def test_journal_priorities() -> None:
    """Where systemd listens each line carries its priority instead of a word."""
    stream = io.StringIO()
    journal = Journal(stream, priorities=True)
    journal.info("a")
    journal.notice("b")
    journal.warning("c")
    journal.error("d")
    assert stream.getvalue() == "<6>a\n<5>b\n<4>c\n<3>d\n"


def test_journal_survives_a_closed_terminal() -> None:
    """A terminal that is closed does not take the run down."""
    stream = io.StringIO()
    stream.close()
    Journal(stream).info("nobody hears this")


def test_runtime_directory_is_private(tmp_path: Path) -> None:
    """The directory is ours alone; one that others can write to is refused with what to do."""
    own = prepare(tmp_path / "root", name="exec-1")
    assert own.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError) as caught:
        prepare(tmp_path / "open", name="exec-1")
    assert caught.value.hint
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with pytest.raises(ConfigError):
        prepare(tmp_path / "link", name="exec-1")


def test_old_words_of_dead_agents_go(tmp_path: Path) -> None:
    """What a killed agent left is removed after a day, not before, and never a living one's."""
    root = tmp_path / "root"
    fresh, old = prepare(root, name="exec-4194305"), prepare(root, name="exec-4194306")
    living = prepare(root, name=f"exec-{os.getpid()}")
    for path in (old, living):
        os.utime(path, (0, 0))
    prepare(root, name="exec-1")
    assert (fresh.exists(), old.exists(), living.exists()) == (True, False, True)


def test_drain_lock(tmp_path: Path) -> None:
    """The next agent waits for one that drains the same run, and for no other."""
    drains, next_one = DrainLock(tmp_path, "/store", run="t"), DrainLock(tmp_path, "/store", run="t")
    other = DrainLock(tmp_path, "/store", run="u")
    said: list[str] = []
    assert next_one.wait(say=lambda: said.append("waiting"), stopped=lambda: False)
    assert said == []
    drains.hold()
    assert other.wait(say=lambda: said.append("other"), stopped=lambda: False)
    assert not next_one.wait(say=lambda: said.append("waiting"), stopped=lambda: False, seconds=0)
    assert not next_one.wait(say=lambda: None, stopped=lambda: True)
    releasing = threading.Event()

    def waiting() -> None:
        said.append("waiting")
        releasing.set()

    def release() -> None:
        releasing.wait(10)
        drains.release()

    thread = threading.Thread(target=release)
    thread.start()
    assert next_one.wait(say=waiting, stopped=lambda: False)
    thread.join()
    assert said == ["waiting", "waiting"]


@pytest.mark.parametrize(
    ("text", "window"),
    [("", WINDOW_SECONDS), ("5s\n", 5), ("2 min", 120), ("90", 90), ("soon?", WINDOW_SECONDS)],
)
def test_flag_file(tmp_path: Path, text: str, window: float) -> None:
    """A flag file is a notice; it may say how long, and rubbish in it means the default."""
    path = tmp_path / "flag"
    source = FlagFile(path)
    assert source.look() is None
    path.write_text(text)
    notice = source.look()
    assert notice is not None
    assert notice.deadline is not None
    assert notice.deadline - notice.received_at == pytest.approx(window, abs=0.9)
    again = source.look()
    assert again is not None
    assert again.id == notice.id
    source.handled()
    assert source.look() is None


def test_old_flag_file(tmp_path: Path) -> None:
    """A flag file that was there before the agent is history."""
    path = tmp_path / "flag"
    path.touch()
    os.utime(path, (1000, 1000))
    assert FlagFile(path).look() is None


class _Inbox:
    """An inbox on a store in memory, and what it told."""

    def __init__(self, store: MemoryStore, life: Life) -> None:
        self.stream = io.StringIO()
        self.superseded: list[Superseded] = []
        self.source = Inbox(store, life, superseded=self.superseded.append, journal=Journal(self.stream))
        self.source.period = 0.001


@pytest.fixture
def store() -> MemoryStore:
    """A store in memory."""
    return MemoryStore()


def test_inbox_tells_each_request_once(store: MemoryStore) -> None:
    """A request becomes one notice, with the time that is left by the store's clock."""
    life = claim(store, "t", identity=Identity.here(["x"]))
    inbox = _Inbox(store, life)
    request = put_request(store, "t", "reclaim", life=1, deadline=store.now() + timedelta(seconds=60))
    (notice,) = inbox.source.look()
    assert (notice.kind, notice.id, notice.source) == ("reclaim", request.id, "inbox")
    assert notice.deadline is not None
    assert 58 < notice.deadline - notice.received_at <= 60
    assert inbox.source.look() == []
    inbox.source.handled()
    assert list(store.list(layout.inboxes("t"))) == []


def test_inbox_passes_over_what_is_not_for_us(store: MemoryStore) -> None:
    """Requests for another life, and old ones that expired, are no notice; rubbish is one line."""
    put_request(store, "t", "reclaim", life=None, deadline=store.now() - timedelta(seconds=60))
    life = claim(store, "t", identity=Identity.here(["x"]))
    put_request(store, "t", "reclaim", life=7, deadline=store.now() + timedelta(seconds=60))
    store.put(layout.inbox("t", "rubbish"), b"[" * 10_000)
    inbox = _Inbox(store, life)
    assert inbox.source.look() == []
    assert inbox.source.look() == []
    assert inbox.stream.getvalue().count("can't be understood") == 1
    inbox.source.handled()
    assert len(list(store.list(layout.inboxes("t")))) == 3


def test_an_inbox_full_of_rubbish_is_a_few_lines(store: MemoryStore) -> None:
    """Who may write to the bucket can't fill the journal; a request among it all is heard."""
    life = claim(store, "t", identity=Identity.here(["x"]))
    for number in range(200):
        store.put(layout.inbox("t", f"rubbish-{number}"), b"?")
    request = put_request(store, "t", "reclaim", life=1, deadline=store.now() + timedelta(hours=1))
    inbox = _Inbox(store, life)
    assert [notice.id for notice in inbox.source.look()] == [request.id]
    assert inbox.source.look() == []
    lines = inbox.stream.getvalue().splitlines()
    assert len(lines) == MOST_TOLD + 1
    assert "find out who writes there" in lines[-1]


def test_inbox_sees_a_newer_life(store: MemoryStore) -> None:
    """The poll is where a life learns that a newer one was claimed; then it ends."""
    life = claim(store, "t", identity=Identity.here(["x"]))
    inbox = _Inbox(store, life)
    claim(store, "t", identity=Identity.here(["y"]))
    told: list[Notice] = []
    inbox.source.run(told.append, threading.Event())
    assert len(inbox.superseded) == 1
    assert told == []


def test_inbox_says_once_that_the_claim_is_gone(store: MemoryStore) -> None:
    """It leaves the rest to the next save, which must look what else is gone before it says "saved"."""
    life = claim(store, "t", identity=Identity.here(["x"]))
    inbox = _Inbox(store, life)
    store.delete([layout.life("t", 1)])
    for _ in range(2):
        inbox.source._check_claim()
    assert inbox.stream.getvalue().count("the claim of life 1 was removed") == 1
    assert [info.key for info in store.list("t/lives/")] == []


class _Flaky(MemoryStore):
    """Unreachable for its first listings; then the closing event ends the source."""

    def __init__(self, closing: threading.Event) -> None:
        super().__init__()
        self.left = 3
        self.closing = closing

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        if prefix == layout.inboxes("t"):
            self.left -= 1
            if self.left >= 0:
                raise Unavailable("no answer", hint="look at the network")
            if self.left < -2:
                self.closing.set()
        return super().list(prefix, after=after)


def test_inbox_outlives_a_store_that_is_away() -> None:
    """A store that can't be reached is one line, and one more when it is back; the source goes on."""
    closing = threading.Event()
    store = _Flaky(closing)
    inbox = _Inbox(store, claim(store, "t", identity=Identity.here(["x"])))
    inbox.source.run(lambda notice: None, closing)
    lines = inbox.stream.getvalue().splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "warning: the run's inbox can't be read: no answer; look at the network",
        "the run's inbox can be read again",
    ]
