"""The last responsible moment, by arithmetic alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive_agent.measured import Estimate, Figures
from outlive_agent.planner import (
    FIRST_SAVE_SECONDS,
    LONGEST_INTERVAL_SECONDS,
    interval_seconds,
    last_save_seconds,
    needed,
    plan,
)

_seconds = st.floats(min_value=0.001, max_value=1000)
_estimates = st.builds(
    Estimate,
    seconds=_seconds,
    deviation=st.just(0.0) | st.floats(min_value=0, max_value=100),
    samples=st.integers(min_value=0, max_value=8),
)
_figures = st.builds(
    Figures,
    step=st.none() | _estimates,
    copy=st.none() | _estimates,
    upload=st.none() | _estimates,
    in_flight_seconds=st.none() | st.floats(min_value=0, max_value=1000),
)


def _measured(*, upload: float, spread: float = 0.0, in_flight: float | None = None) -> Figures:
    return Figures(
        step=Estimate(seconds=1, samples=50),
        copy=Estimate(seconds=0.5, samples=8),
        upload=Estimate(seconds=upload, deviation=spread, samples=8),
        changed_bytes=1_000_000_000,
        in_flight_seconds=in_flight,
    )


def test_short_window() -> None:
    """With 30 s left and a save of 8 s the last save is at the next step."""
    decided = plan(100.0, 120.0, _measured(upload=8))
    assert (decided.action, decided.stop_at, decided.fits) == ("save and stop", 100.0, True)


def test_long_window() -> None:
    """Of two hours at least 97 % are spent training, with one save at once in case the guess is wrong."""
    decided = plan(0.0, 7200.0, _measured(upload=140))
    assert decided.save_now
    assert decided.fits
    assert 0.97 * 7200 < decided.stop_at < 7200 - 141.5


def test_line_carries_its_figures() -> None:
    """Whoever reads the decision can check it."""
    text = plan(0.0, 7200.0, _measured(upload=100)).text
    assert text == (
        "2 h left, a last save needs 2 min 8 s (step 1.0 s, copy 500 ms, 1.0 GB at 10.0 MB/s, margin 25 s): "
        "saving now, training on for 1 h 57 min, then the last save"
    )


def test_margin_widens_with_the_spread() -> None:
    """The more the uploads stray, the earlier the last one begins."""
    steady, stray = _measured(upload=100), _measured(upload=100, spread=40)
    assert needed(steady).margin == pytest.approx(0.25 * 101.5)
    assert needed(stray).margin == pytest.approx(3 * 40)
    assert plan(0.0, 7200.0, stray).stop_at < plan(0.0, 7200.0, steady).stop_at - 90


def test_few_samples_are_not_trusted() -> None:
    """One upload says nothing of the spread, so the margin is larger."""
    figures = Figures(upload=Estimate(seconds=100))
    assert needed(figures).margin == pytest.approx(0.5 * 102)


def test_training_goes_on_once_covered() -> None:
    """A save that was made since the notice lets training go on up to the last responsible moment."""
    figures = _measured(upload=8)
    assert plan(0.0, 20.0, figures).stop_at == 0.0
    assert plan(0.0, 20.0, figures, covered=True).stop_at == pytest.approx(20 - last_save_seconds(figures))


def test_no_room_for_both() -> None:
    """A last save that could only fit without the one under way takes its place."""
    decided = plan(0.0, 40.0, _measured(upload=20, in_flight=18))
    assert decided.drop_in_flight
    assert (decided.action, decided.fits) == ("save and stop", True)


def test_only_the_one_under_way_fits() -> None:
    """When a new save can't fit but the one under way can, it is left to finish."""
    decided = plan(0.0, 20.0, _measured(upload=60, in_flight=5))
    assert (decided.action, decided.fits, decided.drop_in_flight) == ("finish", False, False)
    assert decided.stop_at == 20.0
    assert "finishing the save under way" in decided.text


def test_the_sure_one_is_preferred() -> None:
    """A new save without its margin does not cost the one under way, which is sure."""
    assert plan(0.0, 12.0, _measured(upload=10, in_flight=5)).action == "finish"
    assert plan(0.0, 12.0, _measured(upload=10, in_flight=50)).drop_in_flight


def test_nothing_fits() -> None:
    """With no time at all it says that the last checkpoint stands, and does not claim more."""
    decided = plan(0.0, 0.0, _measured(upload=10))
    assert (decided.action, decided.stop_at, decided.fits) == ("nothing fits", 0.0, False)


def test_nothing_measured() -> None:
    """Before anything is measured a short window is taken as it is, and nothing is claimed."""
    decided = plan(0.0, 5.0, Figures())
    assert (decided.action, decided.stop_at, decided.fits) == ("save and stop", 0.0, None)


def test_unknown_deadline() -> None:
    """A reclaim that does not say when is one that comes now."""
    decided = plan(100.0, None, _measured(upload=10))
    assert (decided.action, decided.stop_at, decided.fits) == ("save and stop", 100.0, None)


@given(left=st.floats(min_value=-10, max_value=20_000), figures=_figures, covered=st.booleans())
def test_any_window(left: float, figures: Figures, covered: bool) -> None:
    """No last save is planned that by its figures can't finish, and none is left out that would fit."""
    now = 1000.0
    deadline = now + left
    left = deadline - now  # as it comes out in binary
    decided = plan(now, deadline, figures, covered=covered)
    need, busy = needed(figures), figures.in_flight_seconds
    assert decided.stop_at >= now or decided.action == "finish"
    if decided.action in {"save and go on", "go on"}:
        assert now < decided.stop_at <= now + left - need.full + 1e-6
    elif decided.action == "save and stop":
        assert need.guessed or need.bare <= left
        if busy is not None and not decided.drop_in_flight and not need.guessed:
            assert busy + need.bare <= left  # the new one waits for it
    else:
        in_the_way = busy is not None and busy <= left < busy + need.safe
        assert need.bare > left or (decided.action == "finish" and (in_the_way or need.guessed))
    if decided.action == "finish":
        assert busy is not None
        assert busy <= left
    assert decided.save_now == (decided.action == "save and go on")
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
    figures = Figures(copy=Estimate(seconds=copy), upload=Estimate(seconds=upload))
    assert interval_seconds(figures, saves=1) == pytest.approx(expected)
