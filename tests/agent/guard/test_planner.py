"""The last responsible moment, by arithmetic alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive_agent.planner import (
    FIRST_SAVE_SECONDS,
    LONGEST_INTERVAL_SECONDS,
    Figures,
    interval_seconds,
    last_save_seconds,
    plan,
)

_seconds = st.floats(min_value=0.001, max_value=1000)
_figures = st.builds(
    Figures,
    step_seconds=st.none() | _seconds,
    copy_seconds=st.none() | _seconds,
    upload_seconds=st.none() | _seconds,
    in_flight_seconds=st.none() | st.floats(min_value=0, max_value=1000),
)


def test_short_window() -> None:
    """With 30 s left and a save of a few seconds the last save is at the next step."""
    figures = Figures(step_seconds=1, copy_seconds=0.5, upload_seconds=8)
    decided = plan(100.0, 130.0, figures)
    assert (decided.stop_at, decided.fits, decided.save_now) == (100.0, True, False)


def test_long_window() -> None:
    """With two hours left one save is made at once, and training goes on for nearly all of it."""
    figures = Figures(step_seconds=1, copy_seconds=0.5, upload_seconds=60)
    decided = plan(0.0, 7200.0, figures)
    assert decided.save_now
    assert decided.fits
    assert 7000 < decided.stop_at < 7200 - 61.5


def test_no_room_for_both() -> None:
    """A last save that could only fit without the one under way takes its place."""
    figures = Figures(step_seconds=1, copy_seconds=1, upload_seconds=20, in_flight_seconds=18)
    decided = plan(0.0, 40.0, figures)
    assert decided.drop_in_flight
    assert decided.fits


def test_only_the_one_under_way_fits() -> None:
    """When a new save can't fit but the one under way can, it is left to finish."""
    figures = Figures(step_seconds=1, copy_seconds=1, upload_seconds=60, in_flight_seconds=5)
    decided = plan(0.0, 20.0, figures)
    assert not decided.drop_in_flight
    assert decided.fits is False
    assert "finishing the save under way" in decided.text


def test_nothing_measured() -> None:
    """Before anything is measured a short window is taken as it is, and nothing is claimed."""
    decided = plan(0.0, 5.0, Figures())
    assert (decided.stop_at, decided.fits) == (0.0, None)


@given(left=st.floats(min_value=-10, max_value=20_000), figures=_figures)
def test_any_window(left: float, figures: Figures) -> None:
    """It never plans a last save that its own figures say can't finish, and never waits past the deadline."""
    now = 1000.0
    decided = plan(now, now + left, figures)
    needed = last_save_seconds(figures)
    assert decided.stop_at >= now
    if decided.stop_at > now:
        assert decided.stop_at + needed <= now + left + 1e-6
        assert decided.fits
    if decided.drop_in_flight:
        assert figures.in_flight_seconds is not None
        assert figures.in_flight_seconds + needed > left
    if decided.fits and figures.in_flight_seconds and not decided.drop_in_flight and left >= needed:
        assert figures.in_flight_seconds + needed <= left or decided.stop_at > now
    assert "\n" not in decided.text


def test_first_interval() -> None:
    """Before the first save nothing is safe, so it comes early."""
    assert interval_seconds(Figures(), saves=0) == FIRST_SAVE_SECONDS


@pytest.mark.parametrize(
    ("copy", "upload", "expected"),
    [(0.5, 10, 120), (0.5, 100, 200), (100, 1, LONGEST_INTERVAL_SECONDS), (0.0, 0.001, 5.0)],
)
def test_automatic_interval(copy: float, upload: float, expected: float) -> None:
    """Young's formula, but never shorter than twice the upload, nor longer than 15 minutes."""
    figures = Figures(copy_seconds=copy, upload_seconds=upload)
    assert interval_seconds(figures, saves=1) == pytest.approx(expected)
