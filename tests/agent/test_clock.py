"""The recovery clock: arithmetic on what the lives wrote down."""

from datetime import datetime, timedelta, timezone

import pytest

from outlive.store.events import Event
from outlive.store.layout import CheckpointId
from outlive.store.lives import Adoption
from outlive_agent.clock import goodput, recoveries
from outlive_agent.story import LifeStory

NOON = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)


def _life(
    number: int, *events: tuple[str, float, dict[str, object]], since: CheckpointId | None
) -> LifeStory:
    told = tuple(
        Event(life=number, sequence=place, event=name, at=NOON + timedelta(seconds=at), details=details)
        for place, (name, at, details) in enumerate(events)
    )
    adoption = Adoption(life=number, nonce="n", checkpoint=since, rewind=False)
    return LifeStory(number=number, claim=None, adoption=adoption, checkpoints=(), events=told)


STORY = [
    _life(
        1,
        ("started", 2, {"up_seconds": 2}),
        ("training", 10, {"seconds": 8.0, "step": 1}),
        ("notice", 80, {"kind": "reclaim"}),
        ("ended", 90, {"outcome": "stopped", "step": 100, "steps_lost": 20}),
        since=None,
    ),
    _life(
        2,
        ("started", 103, {"up_seconds": 3}),
        ("restored", 104, {"bytes": 5000}),
        ("training", 108, {"seconds": 5.5, "step": 81}),
        ("ended", 200, {"outcome": "finished", "step": 200, "steps_lost": 0}),
        since=CheckpointId(life=1, step=80),
    ),
]


def test_clock_reads_from_notice_to_first_step() -> None:
    """Each duration of a change of machines is the difference of the two moments that its name says."""
    first, second = recoveries(STORY)
    assert (None, None, 2, None, 8.0) == (
        first.notice_to_saved,
        first.away,
        first.boot_to_agent,
        first.agent_to_restored,
        first.agent_to_first_step,
    )
    assert (10, 10, 3, 1, 5.5) == (
        second.notice_to_saved,
        second.away,
        second.boot_to_agent,
        second.agent_to_restored,
        second.agent_to_first_step,
    )
    assert (20, 5000) == (second.steps_lost, second.bytes)


def test_goodput_counts_neither_boots_nor_lost_steps() -> None:
    """80 of 80 seconds' steps minus the lost fifth, and all of 92 seconds, of 190 seconds that were paid."""
    assert pytest.approx((0.8 * 80 + 92) / (90 + 100)) == goodput(STORY)
    assert goodput([]) is None
