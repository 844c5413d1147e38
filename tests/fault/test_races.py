"""A bounded form of ``python tests/fault/races.py``."""

import random

from fakes.servers import shared
from fault.races import campaign

ROUNDS = 15


def test_no_acknowledged_checkpoint_is_lost_among_writers() -> None:
    """Writers of one run at once: each life has one owner, and none resumes behind what was acknowledged."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    tally = campaign(shared("rgw"), ROUNDS, random.Random(seed))  # noqa: S311 - when to pause, not a secret
    assert [] == tally.problems
    assert tally.rounds == ROUNDS
    assert tally.superseded > 0
