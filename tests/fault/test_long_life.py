"""A bounded form of ``python tests/fault/long_life.py``."""

import random

from fault.long_life import month

SAVES = 400


def test_a_long_run_stays_bounded() -> None:
    """Lives, rewinds and failing prunes leave no more than the policy and a day's grace, and lose nothing."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    tally = month(SAVES, random.Random(seed))  # noqa: S311 - what happens when, not a secret
    assert [] == tally.problems
    assert tally.saves == SAVES
    assert tally.lives > 1
    assert tally.failed_prunes > 0
