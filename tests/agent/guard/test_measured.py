"""What a save is expected to cost, from what this run has seen."""

import pytest

from outlive_agent.measured import Measured, Progress

GB = 1_000_000_000


def test_nothing() -> None:
    """What was not measured is not known."""
    figures = Measured().figures()
    assert (figures.step, figures.copy, figures.upload, figures.rate) == (None, None, None, None)


def test_restore_stands_in() -> None:
    """Until something was uploaded the download of what was restored says how long it may take."""
    measured = Measured()
    measured.restored(10 * GB, 50.0)
    figures = measured.figures()
    assert figures.upload is not None
    assert (figures.upload.seconds, figures.upload.samples) == (100.0, 0)
    assert figures.restore_seconds == 50.0


def test_frozen_base_is_not_expected_again() -> None:
    """The first save sends what never changes too; as soon as two others are known it counts no more."""
    measured = Measured()
    measured.uploaded(20 * GB, 200.0)
    measured.uploaded(GB // 20, 1.0)
    assert measured.figures().changed_bytes == 20 * GB
    measured.uploaded(GB // 20, 1.2)
    figures = measured.figures()
    assert figures.changed_bytes == GB // 20
    assert figures.upload is not None
    assert figures.upload.seconds == pytest.approx(1.1)


def test_bytes_that_vary() -> None:
    """The most that a recent save had to send is expected, at the rate of each."""
    measured = Measured()
    for sent, seconds in [(GB, 10.0), (GB // 2, 5.0), (GB, 10.0), (GB // 2, 6.0)]:
        measured.uploaded(sent, seconds)
    figures = measured.figures()
    assert figures.changed_bytes == GB
    assert figures.upload is not None
    assert figures.upload.seconds == pytest.approx((10 + 10 + 12) / 3)


def test_save_of_nothing_is_no_rate() -> None:
    """A save that had next to nothing to send says nothing of the rate."""
    measured = Measured()
    for sent, seconds in [(GB, 10.0), (GB, 10.0), (100, 0.5), (0, 0.5)]:
        measured.uploaded(sent, seconds)
    figures = measured.figures()
    assert figures.upload is not None
    assert figures.upload.seconds == pytest.approx(10.0)
    assert figures.rate == pytest.approx(GB / 10)


def test_slow_upload_counts_while_it_lasts() -> None:
    """An upload under way that is slower than usual is news at once; one that is faster must end first."""
    measured = Measured()
    for _ in range(3):
        measured.uploaded(GB, 10.0)
    slow = measured.figures(Progress(done=GB // 10, total=GB, sent=GB // 10, seconds=10.0))
    assert slow.upload is not None
    assert slow.upload.seconds > 30
    assert slow.in_flight_seconds == pytest.approx(90)
    fast = measured.figures(Progress(done=GB // 2, total=GB, sent=GB // 2, seconds=1.0))
    assert fast.upload is not None
    assert fast.upload.seconds == pytest.approx(10.0)
    assert fast.in_flight_seconds == pytest.approx(1.0)


def test_upload_that_stands_still() -> None:
    """One that should be done and has hardly begun is not said to be about to end."""
    measured = Measured()
    for _ in range(2):
        measured.uploaded(GB, 10.0)
    figures = measured.figures(Progress(done=0, total=GB, sent=0, seconds=60.0))
    assert figures.in_flight_seconds == 60.0


def test_steps_seen_from_time_to_time() -> None:
    """Between two looks lie many steps, and one long among them (an evaluation) still shows."""
    measured = Measured()
    at, step = 0.0, 0
    for look in range(20):
        measured.stepped(step, at, mean=0.1)
        step += 20
        at += 2.0 + (10.0 if look == 10 else 0.0)
    figures = measured.figures()
    assert figures.step is not None
    assert 0.5 < figures.step.seconds < 1.0
    assert figures.step.deviation > 2


def test_new_trainer_is_no_long_step() -> None:
    """The time between two trainers is not the time of a step."""
    measured = Measured()
    measured.stepped(5, 10.0, mean=None)
    measured.trainer_came()
    measured.stepped(6, 500.0, mean=None)
    assert measured.figures().step is None
