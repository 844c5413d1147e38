"""A bounded form of ``python tests/fault/kills.py``."""

import random
from pathlib import Path

from fault.kills import Victim, campaign


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Killed at random moments, a run resumes from a valid checkpoint and ends bit-equal to an untouched."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)  # noqa: S311 - where to strike, not a secret
    victims: list[Victim] = ["trainer", "trainer", "trainer", "agent", "agent", "both", "both"]
    draw.shuffle(victims)
    tally = campaign(tmp_path, victims, draw)
    assert [] == tally.problems
    assert {"trainer": 3, "agent": 2, "both": 2} == tally.kills
