import threading

import pytest

from outlive.errors import Cancelled, StoreError
from outlive.store.flight import Tally, each


def test_everything_is_done_once() -> None:
    """Each item is worked on exactly once, however many workers there are."""
    done: list[int] = []
    each(range(100), done.append, workers=8)
    assert sorted(done) == list(range(100))


def test_the_first_error_wins_and_the_others_stop() -> None:
    """Nothing is begun after a failure, and the error is the one that happened first, with its cause."""
    cause = OSError("disk")
    began: list[int] = []
    failed = threading.Event()

    def work(item: int) -> None:
        began.append(item)
        if item == 3:
            error = StoreError("no")
            error.__cause__ = cause
            failed.set()
            raise error
        assert failed.wait(10)

    with pytest.raises(StoreError, match="no") as caught:
        each(range(1000), work, workers=4)
    assert caught.value.__cause__ is cause
    assert len(began) < 20


def test_cancelling_stops_between_two_items() -> None:
    """The item that is under way is finished, no other is begun."""
    done: list[int] = []
    with pytest.raises(Cancelled):
        each(range(1000), done.append, workers=2, cancelled=lambda: len(done) >= 5)
    assert 5 <= len(done) <= 8


def test_a_tally_counts_from_many_threads() -> None:
    """No byte is lost between two threads, and the listener sees it grow."""
    seen: list[tuple[int, int, int]] = []
    tally = Tally(1000, lambda done, total, sent: seen.append((done, total, sent)))
    each(range(500), lambda item: tally.add(2, sent=1), workers=8)
    assert (tally.done, tally.sent) == (1000, 500)
    assert seen == [(2 * n, 1000, n) for n in range(1, 501)]


def test_one_thread_does_the_work_where_no_more_are_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine at its limit is slow, and not in error."""
    begun, start = [0], threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        begun[0] += 1
        if begun[0] > 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    each(range(20), done.append, workers=4)
    assert sorted(done) == list(range(20))
    with pytest.raises(RuntimeError, match="new thread"):
        each(range(20), done.append, workers=4)
