"""A thousand reclaims on a simulated clock, through the real planner and end game."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.guard.simulation import Outcome, Schedule, simulate
from outlive_agent.planner import needed

MB = 1_000_000
TWO_HOURS = 7200.0
_HOUR = 3600.0

_steps = st.sampled_from([0.05, 0.3, 1.0, 4.0, 20.0])
_uploads = st.floats(min_value=math.log(0.2), max_value=math.log(400)).map(math.exp)
_windows = st.sampled_from([0.0, 5.0, 30.0, 60.0, 120.0, 300.0, TWO_HOURS]) | st.floats(
    min_value=0, max_value=TWO_HOURS
)


@st.composite
def schedules(draw: st.DrawFn, *, calm: bool = False) -> Schedule:
    """``calm``: nothing fails, and everything takes about as long as before."""
    upload = draw(_uploads)
    size = draw(st.sampled_from([MB, 100 * MB, 14_000 * MB]))
    every = max(30.0, 2.5 * upload) * draw(st.sampled_from([1.0, 3.0]))
    return Schedule(
        step=draw(_steps),
        copy=draw(st.sampled_from([0.0, 0.05, 0.5, 3.0])),
        size=size,
        rate=size / upload,
        every=every,
        notice_at=draw(st.floats(min_value=5 * every if calm else 0.0, max_value=8 * every)),
        window=draw(_windows),
        jitter=draw(st.sampled_from([0.0, 0.05] if calm else [0.0, 0.1, 0.3, 0.8])),
        slows=1.0 if calm else draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, 10.0])),
        failing=0.0 if calm else draw(st.sampled_from([0.0, 0.0, 0.2, 0.9])),
        earlier=0.0 if calm else draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])),
        seed=draw(st.integers(min_value=0, max_value=1 << 30)),
    )


_bounded = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@settings(_bounded, max_examples=1000)
@given(schedule=schedules())
def test_no_plan_breaks_its_own_figures(schedule: Schedule) -> None:
    """Whatever chance brings, no save is planned that can't finish, and none is left out that would fit."""
    outcome = simulate(schedule)
    assert outcome.plans
    for now, plan, figures in outcome.plans:
        need, busy = needed(figures), figures.in_flight_seconds
        left = _deadline(schedule, now) - now
        if plan.action in {"save and go on", "go on"}:
            assert plan.stop_at + need.full <= now + left + 1e-6
        elif plan.action == "save and stop":
            assert plan.fits is None or need.bare <= left
        else:
            one_fits = need.bare <= left and not (busy is not None and busy <= left < busy + need.safe)
            assert not one_fits or need.guessed
            assert (plan.action == "finish") == (busy is not None and busy <= left)
    _no_idling(schedule, outcome)
    steps = [step for _, step in outcome.saved]
    assert steps == sorted(steps)


@settings(_bounded, max_examples=400)
@given(schedule=schedules(calm=True))
def test_nothing_is_lost_whenever_a_save_fits(schedule: Schedule) -> None:
    """Where a save takes as long as before, no step is lost if one fits, and the window is spent training."""
    outcome = simulate(schedule)
    now, first, figures = outcome.plans[0]
    need, busy = needed(figures), figures.in_flight_seconds
    worst = (1 + schedule.jitter) * (schedule.step + schedule.copy + schedule.size / schedule.rate)
    if not need.guessed and need.safe <= schedule.window and worst < need.safe:
        assert outcome.lost == 0
        assert outcome.stopped_at is not None
    elif first.action == "finish" and busy is not None and busy * 1.1 < schedule.window:
        assert outcome.saved, "what was under way is committed"
        assert outcome.saved[-1][0] >= now
    before = [step for at, step in outcome.saved if at <= schedule.notice_at]
    assert (outcome.newest or 0) >= max(before, default=0)
    if schedule.window >= TWO_HOURS and need.full <= 0.03 * schedule.window:
        assert outcome.stopped_at is not None
        assert outcome.stopped_at - now >= 0.97 * schedule.window - schedule.step - schedule.copy


def _no_idling(schedule: Schedule, outcome: Outcome) -> None:
    """Until the training is asked to stop it trains, and it is asked as late as the last plan allows."""
    if outcome.stopped_at is None:
        _, last, _ = outcome.plans[-1]
        waits = outcome.deadline - last.stop_at
        assert last.action == "finish" or waits <= 2 * (schedule.step + schedule.copy) + 1e-6


def _deadline(schedule: Schedule, now: float) -> float:
    end = schedule.notice_at + schedule.window
    if schedule.earlier and now >= schedule.notice_at + schedule.window / 4:
        return schedule.notice_at + schedule.window * (1 - schedule.earlier / 2)
    return end
