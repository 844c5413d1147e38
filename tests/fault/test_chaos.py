"""A bounded form of ``python tests/fault/chaos.py``."""

import random

from fakes.servers import shared
from fault.chaos import campaign


def test_nothing_acknowledged_is_lost_among_kills_and_faults() -> None:
    """Lives are killed while requests are refused, cut, altered or unanswered: what was told is there."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    tally = campaign(shared("moto"), runs=1, lives=4, draw=random.Random(seed))  # noqa: S311
    assert tally.problems == []
    assert tally.lives == 4
