"""A bounded form of ``python tests/ranks/kills.py``."""

import random
from pathlib import Path

from ranks.kills import campaign


def test_nothing_acknowledged_by_several_ranks_is_lost(tmp_path: Path, warm: Path) -> None:
    """A rank, all ranks, the agent or everything killed at random moments: the run ends as an untouched."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)  # noqa: S311 - where to strike, not a secret
    scene = campaign(tmp_path, warm, kills=8, draw=draw)
    assert scene.tally.problems == []
    assert sum(scene.struck.values()) >= 6
