"""The small pure parts of the guard: pace, end game, restarts, verdict."""

from datetime import timedelta

import pytest

from outlive_agent.endgame import EndGame
from outlive_agent.exits import Exit
from outlive_agent.measured import Estimate, Figures
from outlive_agent.pace import Pace
from outlive_agent.restarts import Restarts
from outlive_agent.settings.values import Every
from outlive_agent.verdict import Facts, judge


def test_pace_counts_from_the_last_snapshot() -> None:
    """An interval in seconds begins anew with every snapshot, whatever it was taken for."""
    pace = Pace(Every(duration=timedelta(seconds=30)))
    assert pace.due_at(Figures()) is None
    pace.started(100)
    assert pace.due_at(Figures()) == 130
    pace.taken(120)
    assert pace.due_at(Figures()) == 150


def test_pace_of_steps_is_the_trainers() -> None:
    """Where steps decide the agent asks for nothing, except after a failure."""
    pace = Pace(Every(steps=10))
    pace.started(100)
    assert pace.due_at(Figures()) is None
    assert pace.failed(200) == 5
    assert pace.due_at(Figures()) == 205


def test_pace_grows_patient() -> None:
    """Failures in a row are tried again ever later, and a save that succeeds ends that."""
    pace = Pace(Every(duration=timedelta(hours=1)))
    pace.started(0)
    assert [pace.failed(0) for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    pace.taken(7)
    pace.saved()
    assert pace.failures == 0
    assert pace.due_at(Figures()) == 3607


def test_endgame_escalates_once() -> None:
    """A trainer that does not stop is sent SIGTERM after the grace period, SIGKILL later, each once."""
    end = EndGame(30)
    assert end.escalate(1000) is None
    end.ask("signal", 1000)
    assert end.escalate(1029) is None
    assert [end.escalate(1030), end.escalate(1031), end.escalate(1034)] == ["terminate", None, None]
    assert [end.escalate(1035), end.escalate(2000)] == ["kill", None]
    assert end.next_at() is None


def test_endgame_keeps_the_first_cause() -> None:
    """A second wish to stop neither moves the clock nor renames the cause."""
    end = EndGame(30)
    end.ask("notice", 1000)
    end.ask("signal", 1020)
    assert (end.cause, end.next_at()) == ("notice", 1030)


def test_endgame_hurry() -> None:
    """Somebody who interrupts again gets the kill at once, a second SIGTERM the usual escalation."""
    end = EndGame(3600)
    end.ask("interrupt", 1000)
    end.hurry(1001, at_once=True)
    assert end.escalate(1001) == "kill"
    end = EndGame(3600)
    end.ask("signal", 1000)
    end.hurry(1001, at_once=False)
    assert [end.escalate(1001), end.escalate(1002), end.escalate(1006)] == ["terminate", None, "kill"]


_FIGURES = Figures(
    step=Estimate(seconds=1, samples=9),
    copy=Estimate(seconds=1, samples=9),
    upload=Estimate(seconds=10, samples=9),
)
_NEEDED = 12 * 1.25 + 1


def test_endgame_takes_the_more_urgent_notice() -> None:
    """A second notice can make the stop earlier, not later, and its plan is for the earliest deadline."""
    end = EndGame(30)
    end.noticed("a", deadline=500, now=0, figures=_FIGURES)
    assert (end.deadline, end.stop_at) == (500, 500 - _NEEDED)
    later = end.noticed("b", deadline=900, now=0, figures=_FIGURES)
    assert (end.deadline, end.stop_at) == (500, 500 - _NEEDED)
    assert later.text.startswith("8 min 20 s left")
    end.noticed("c", deadline=300, now=0, figures=_FIGURES)
    assert (end.due(283), end.due(300 - _NEEDED)) == (False, True)


def test_endgame_called_off() -> None:
    """When the more urgent notice no longer stands, the other one is planned for; without any, nothing is."""
    end = EndGame(30)
    end.noticed("a", deadline=500, now=0, figures=_FIGURES)
    end.noticed("b", deadline=900, now=0, figures=_FIGURES)
    assert end.call_off("a")
    end.replan(10, _FIGURES)
    assert end.stop_at == 900 - _NEEDED
    assert not end.call_off("b")
    assert end.replan(20, _FIGURES) is None
    assert end.stop_at is None


def test_endgame_follows_the_figures() -> None:
    """An upload that turns out slower moves the stop forward, and only another decision is told again."""
    end = EndGame(30)
    end.noticed("a", deadline=500, now=0, figures=_FIGURES)
    slow = Figures(step=_FIGURES.step, copy=_FIGURES.copy, upload=Estimate(seconds=100, samples=9))
    assert end.replan(10, slow) is None
    assert end.stop_at == 500 - 102 * 1.25 - 1
    told = end.replan(end.stop_at, slow)
    assert told is not None
    assert told.action == "save and stop"
    assert end.due(500 - 102 * 1.25 - 1)
    assert end.replan(400, _FIGURES) is None, "a decision to stop stands"


def test_endgame_finishes_what_is_under_way() -> None:
    """While only the save under way fits nobody is asked to stop; once it is done one more is tried."""
    end = EndGame(30)
    busy = Figures(step=_FIGURES.step, copy=_FIGURES.copy, upload=_FIGURES.upload, in_flight_seconds=3)
    assert end.noticed("a", deadline=5, now=0, figures=busy).action == "finish"
    assert not end.due(2)
    told = end.replan(3, _FIGURES)
    assert told is not None
    assert told.action == "nothing fits"
    assert end.due(3)


def test_restarts_count_crashes_in_a_row() -> None:
    """A checkpoint between two crashes begins the count anew."""
    restarts = Restarts(2)
    assert [restarts.again(10), restarts.again(10), restarts.again(10)] == [True, True, False]
    assert restarts.again(20)
    assert not Restarts(0).again(None)


_FACTS = {
    "attached": True,
    "superseded": False,
    "cause": None,
    "outcome": None,
    "child_code": 0,
    "reached_step": 20,
    "saved_step": 20,
}


@pytest.mark.parametrize(
    ("facts", "code", "outcome"),
    [
        ({"outcome": "finished"}, Exit.FINISHED, "finished"),
        ({"outcome": "finished", "saved_step": 10}, Exit.SAVE_FAILED, "save-failed"),
        ({"outcome": "finished", "saved_step": 10, "child_code": None}, Exit.FAILED, "save-failed"),
        ({"outcome": "finished", "child_code": 1}, Exit.FAILED, "failed"),
        ({"outcome": "stopped", "child_code": 75}, Exit.RESUME, "stopped"),
        ({"cause": "notice", "outcome": "stopped", "child_code": 75}, Exit.RESUME, "stopped"),
        ({"cause": "signal", "child_code": -9, "saved_step": 15}, Exit.SAVE_FAILED, "save-failed"),
        ({"outcome": "exception", "child_code": 1}, Exit.FAILED, "failed"),
        ({"child_code": -9}, Exit.FAILED, "failed"),
        ({"child_code": 0, "saved_step": 15}, Exit.SAVE_FAILED, "save-failed"),
        ({"child_code": 0}, Exit.FINISHED, "ended"),
        ({"superseded": True, "child_code": 76}, Exit.SUPERSEDED, "superseded"),
        ({"attached": False}, Exit.FINISHED, "finished"),
        ({"attached": False, "child_code": 3}, Exit.FAILED, "failed"),
        ({"attached": False, "child_code": -15, "cause": "signal"}, Exit.RESUME, "stopped"),
        ({"attached": False, "child_code": None, "cause": "signal"}, Exit.RESUME, "stopped"),
    ],
)
def test_verdict(facts: "dict[str, object]", code: Exit, outcome: str) -> None:
    """Each way to end has its code, its word, and the steps that were lost."""
    verdict = judge(Facts(**{**_FACTS, **facts}))  # type: ignore[arg-type]
    assert (verdict.exit, verdict.outcome) == (code, outcome)
    if "saved_step" in facts:
        assert verdict.steps_lost > 0
        assert "lost" in verdict.text
