import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.objects.retry import Backoff
from outlive.store.events import EventLog
from outlive_agent import config
from outlive_agent.doctor import examination, opening, rates, surroundings
from outlive_agent.sources.detect import Surroundings


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, a runtime directory and a store of this test's own, in UTC."""
    for name in [name for name in os.environ if name.startswith(("OUTLIVE_", "AWS_", "SPACES_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OUTLIVE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.yaml")
    monkeypatch.setattr("outlive_agent.status.DAEMON_DIRECTORY", tmp_path / "daemon")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store(place: Path) -> ObjectStore:
    """An empty store where the verbs look."""
    return open_store(str(place / "store"))


@pytest.fixture
def gpt(store: ObjectStore, written_once: Path) -> ObjectStore:
    """A run of three lives: reclaimed at step 300, vanished after 400, failed at 512 with 500 saved."""
    shutil.copytree(written_once, store.location)
    return store


@pytest.fixture(scope="session")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, to be copied: a store that survives a power cut takes its time to write."""
    path = tmp_path_factory.mktemp("written") / "store"
    store = open_store(str(path))
    frozen = bytes(range(256)) * 40
    for steps, ended in (((100, 300), "stopped"), ((400,), ""), ((500,), "failed")):
        life = begin(store)
        log = EventLog(store, life.life)
        parent = life.parent.step if life.parent else 0
        log.write("started", mode="exec", pid=7)
        if life.parent is None:
            log.write("fresh", seconds=0.1)
        else:
            pair = [life.parent.life, life.parent.step]
            log.write("restored", checkpoint=pair, seconds=0.25, bytes=10240, source="s3://bucket/runs")
        log.write("training", step=parent, seconds=3.21)
        if ended == "stopped":
            log.write("notice", kind="reclaim", source="inbox", id="a", seconds_left=7200.0)
        for step in steps:
            life.commit(snapshot(step, frozen, step.to_bytes(64, "big"), metrics={"loss": 1 / step}))
        if ended:
            lost = 12 if ended == "failed" else 0
            figures = {
                "steps_lost": lost,
                "saved_step": steps[-1],
                "checkpoints": len(steps),
                "bytes_sent": 9000,
            }
            log.write("ended", outcome=ended, exit=1, step=steps[-1] + lost, seconds=60.0, **figures)
    return path


@pytest.fixture
def quick_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends few bytes, tries again soon, and is on a machine of no provider."""
    monkeypatch.setattr(examination, "SECONDS", 600.0)  # other tests may have the machine
    monkeypatch.setattr(rates, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(rates, "FIRST_BYTES", 1 << 18)
    monkeypatch.setattr(opening, "BACKOFF", Backoff(first_seconds=0.01, deadline_seconds=0.1))
    monkeypatch.setattr(surroundings, "detect", lambda endpoint: Surroundings(provider=None, how="a test"))
