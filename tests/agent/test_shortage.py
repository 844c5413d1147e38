"""What the machine will not give is told on one line; a fault of our own is never called a shortage."""

import errno
import os
import threading

import pytest

from fakes.checkpoints import begin, image
from fakes.commands import Cli
from fakes.stores import Wrapped
from outlive.objects.memory import MemoryStore
from outlive.staging.arena import Arena, Notes
from outlive_agent import __main__
from outlive_agent.__main__ import Verb
from outlive_agent.events import Event, Uploaded, UploadFailed
from outlive_agent.held import Held
from outlive_agent.shortage import Shortage, shortage
from outlive_agent.upload import Uploader


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (MemoryError(), "ulimit -v"),
        (RuntimeError("can't start new thread"), "TasksMax"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), "LimitFSIZE"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "LimitNOFILE"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "MemoryMax"),
    ],
)
def test_a_shortage_names_its_limit(error: Exception, limit: str) -> None:
    """Also where it lies behind the fault of one of the agent's threads."""
    fault = RuntimeError("the agent's thread has a fault")
    fault.__cause__ = error
    for one in (error, fault):
        found = shortage(one)
        assert found is not None
        assert limit in found.hint


@pytest.mark.parametrize("error", [RuntimeError("x"), OSError(errno.EIO, "x"), ValueError()])
def test_a_fault_is_no_shortage(error: Exception) -> None:
    """What nobody expected keeps its trace."""
    assert shortage(error) is None


def hungry(arguments: list[str]) -> int:
    """A verb for which there is no memory."""
    raise MemoryError


def test_a_verb_without_memory_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trace, on any verb."""
    monkeypatch.setitem(__main__.VERBS, "ls", Verb(f"{__name__}:hungry", ""))
    said = Cli(capsys)("ls")
    assert (said.code, said.err.splitlines()[0]) == (1, "Error: there is not enough memory")


def test_a_save_without_memory_fails_and_the_next_one_is_made() -> None:
    """Saving never kills training: the thread that uploads lives on."""

    class Hungry(Wrapped):
        def __init__(self) -> None:
            super().__init__(MemoryStore())
            self.errors: list[Exception] = [MemoryError(), RuntimeError("can't start new thread")]

        def put(self, key: str, body: "bytes | memoryview", *, create_only: bool = False) -> None:
            if "/chunks/" in key and self.errors:
                raise self.errors.pop(0)
            super().put(key, body, create_only=create_only)

    events: list[Event] = []
    posted = threading.Semaphore(0)

    def post(event: Event) -> None:
        events.append(event)
        posted.release()

    store = Hungry()
    committer = begin(store.inner)
    committer._store = store
    committer._workers = 1
    uploader = Uploader(committer, post=post)
    for step in (1, 2, 3):
        uploader.submit(held(step))
        assert posted.acquire(timeout=10)
    uploader.close()
    failed = [event.error for event in events if isinstance(event, UploadFailed)]
    assert [isinstance(error, Shortage) for error in failed] == [True, True]
    assert isinstance(events[-1], Uploaded)


def held(step: int) -> Held:
    """A snapshot in memory that both processes would hold."""
    taken = image(b"x" * 64)
    arena = Arena.create(64)
    arena.view[:] = taken.image
    return Held(
        arena=arena,
        notes=Notes(taken.table, taken.values),
        life=1,
        step=step,
        epoch=None,
        bytes=64,
        source="",
    )
