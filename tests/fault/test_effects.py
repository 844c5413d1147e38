"""A bounded form of ``python tests/fault/effects.py``."""

import random
from pathlib import Path

from fault.effects import campaign


def test_no_death_at_any_effect_of_agent_or_training_loses_anything(tmp_path: Path) -> None:
    """Dead right before a write, a rename, a packet, a copy: what was acknowledged is there, and the run's
    end equals that of a run nobody touched."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)  # noqa: S311 - where to begin, not a secret
    scene = campaign(tmp_path, ["agent", "both"], every=12, draw=draw)
    training = campaign(tmp_path / "t", ["training"], every=2, draw=draw)
    assert scene.tally.problems + training.tally.problems == []
    assert min(scene.deaths.get("agent", 0), scene.deaths.get("both", 0), training.deaths["training"]) >= 5
