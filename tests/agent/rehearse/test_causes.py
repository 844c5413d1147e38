"""Every known cause is found in a real training that has it."""

from collections.abc import Callable
from typing import Any

import pytest

from outlive_agent.rehearse.causes import TABLE

CAUSES = {
    "other threads": "the training runs in another environment",
    "longer": "the loop has another length",
    "state set again": "a value on run.state is set again after attach",
    "own generator": "a random generator of your own",
    "forgotten object": "an object that outlive.attach was not given",
    "own loop": "the data does not come through run.batches",
    "own order": "the data comes in another order",
    "unseeded data": "random numbers are drawn before attach, and nothing seeds them",
    "data with a state": "the data has a state of its own",
    "late draw": "random numbers are drawn in one of the two runs only",
    "late forward": "a forward pass in training mode outside of the step",
    "own variable": "a variable of your own",
    "rounding": "a kernel that is not deterministic",
    "clock": "the training depends on the clock, or on chance",
}


@pytest.mark.parametrize("disease", CAUSES)
def test_cause_is_named(outcome_of: "Callable[[str], dict[str, Any]]", disease: str) -> None:
    """A training with this disease is refuted, and its cause comes first."""
    outcome = outcome_of(disease)
    assert not outcome["equal"]
    assert outcome["causes"][0]["name"] == CAUSES[disease], _told(outcome)


def test_every_cause_has_its_disease() -> None:
    """No row of the table is without a training that shows it, but the last, which is for the rest."""
    assert [row.name for row in TABLE][:-1] == list(CAUSES.values())


def _told(outcome: "dict[str, Any]") -> str:
    return f"{outcome['difference']}\n{outcome['causes']}"
