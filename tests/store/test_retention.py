from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import ConfigError
from outlive.store.layout import CheckpointId
from outlive.store.retention import Keep, Saved, retained

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


def saved(life: int, step: int, **metrics: float) -> Saved:
    return Saved(id=CheckpointId(life, step), metrics=metrics, created_at=NOW)


def steps(kept: set[CheckpointId]) -> list[int]:
    return sorted(checkpoint.step for checkpoint in kept)


RUN = [saved(1, step) for step in range(2000, 0, -100)]


def test_the_last_ones_stay() -> None:
    """By default the three newest are kept."""
    assert steps(retained(RUN, Keep())) == [1800, 1900, 2000]
    assert steps(retained(RUN, Keep(last=1))) == [2000]
    assert steps(retained([], Keep())) == []


def test_milestones_stay_for_ever() -> None:
    """The first checkpoint at or after each multiple is kept, whether or not a save fell on it."""
    odd = [saved(1, step) for step in (2050, 1990, 1510, 1490, 1010, 700, 510, 490, 3)]
    assert steps(retained(odd, Keep(last=1, every_steps=500))) == [510, 1010, 1510, 2050]


def test_the_best_stays() -> None:
    """The lowest value of the metric is kept, or the highest; what is not a number is no value."""
    found = [
        saved(1, 5, loss=3.0),
        saved(1, 4, loss=float("nan")),
        saved(1, 3, loss=1.0),
        saved(1, 2),
        saved(1, 1, loss=2.0),
    ]
    assert steps(retained(found, Keep(last=1, best="loss"))) == [3, 5]
    assert steps(retained(found, Keep(last=1, best="-loss"))) == [5]
    assert steps(retained(found, Keep(last=1, best="accuracy"))) == [5]


def test_of_two_best_the_preferred_one_stays() -> None:
    """Equal values keep one checkpoint, not both."""
    found = [saved(1, 3), saved(1, 2, loss=1.0), saved(1, 1, loss=1.0)]
    assert steps(retained(found, Keep(last=1, best="loss"))) == [2, 3]


def test_the_protected_stay_whatever_the_policy_says() -> None:
    """The parent of a life is not a question of policy; what is not there can't be kept."""
    assert steps(retained(RUN, Keep(last=1), protected=[CheckpointId(1, 100), CheckpointId(9, 9)])) == [
        100,
        2000,
    ]


def test_all_mistakes_in_a_policy_are_told_at_once() -> None:
    """Who writes a wrong policy learns of every mistake in one go."""
    with pytest.raises(ConfigError) as caught:
        Keep(last=0, every_steps=0, best="-")
    assert str(caught.value).count("\n") == 2


some = st.lists(
    st.builds(
        lambda life, step, loss: saved(life, step, loss=loss),
        st.integers(1, 3),
        st.integers(0, 50),
        st.floats(),
    ),
    unique_by=lambda one: one.id,
    max_size=30,
).map(lambda found: sorted(found, key=lambda one: one.id, reverse=True))
policies = st.builds(
    Keep,
    last=st.integers(1, 4),
    every_steps=st.none() | st.integers(1, 20),
    best=st.sampled_from([None, "loss", "-loss"]),
)


@given(some, policies)
def test_the_newest_always_stays_and_again_changes_nothing(found: list[Saved], keep: Keep) -> None:
    """A policy never lets the newest go, and is at rest after it was applied once."""
    kept = retained(found, keep)
    assert not found or found[0].id in kept
    assert retained([one for one in found if one.id in kept], keep) == kept


@given(some, policies, st.integers(0, 30))
def test_a_milestone_does_not_depend_on_when_it_was_looked_for(
    found: list[Saved], keep: Keep, at: int
) -> None:
    """Within one life, applying the policy after every save keeps the same milestones as applying it once."""
    if keep.every_steps is None:
        return
    found = sorted((one for one in found if one.id.life == 1), key=lambda one: one.id)
    policy = Keep(last=keep.last, every_steps=keep.every_steps)
    standing: list[Saved] = []
    for one in found:
        standing = [one, *standing]
        kept = retained(standing, policy)
        standing = [each for each in standing if each.id in kept]
    assert {one.id for one in standing} == retained(found[::-1], policy)
