"""What became of each life of a run, from what the store holds: claims, adoptions, checkpoints, events."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.events import Event, read_events
from outlive.store.flight import each, workers_for
from outlive.store.layout import CheckpointId
from outlive.store.lives import Adoption, Claim, read_adoption, read_claim
from outlive.store.newest import listed

T = TypeVar("T")

REACHED = "reached"
"""The event that says how far a life is."""
LATE_SECONDS = 10.0
"""By so much the next word of a life may come late."""

ENDINGS = {
    "finished": "finished",
    "ended": "ended, saved",
    "stopped": "stopped, saved",
    "save-failed": "last save failed",
    "failed": "failed",
    "superseded": "superseded",
    "vanished": "vanished",
    "open": "not ended",
}
"""How a life ended, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStory:
    """One life. What isn't known is None: a machine that vanished wrote nothing more."""

    number: int
    claim: Claim | None
    adoption: Adoption | None
    checkpoints: tuple[CheckpointId, ...]
    events: tuple[Event, ...]
    after: "LifeStory | None" = None
    """The next life, if there is one."""

    @property
    def from_step(self) -> int | None:
        """The step it began at."""
        if self.adoption is None:
            return None
        return self.adoption.checkpoint.step if self.adoption.checkpoint else 0

    @property
    def reached_step(self) -> int | None:
        """The last step that it is known to have reached."""
        steps = [number(event, "step") for event in self.events] + [found.step for found in self.checkpoints]
        resumed = self.after.adoption.checkpoint if self.after and self.after.adoption else None
        if resumed is not None and resumed.life == self.number:
            steps.append(resumed.step)  # pruned since
        return max((int(step) for step in steps if step is not None), default=self.from_step)

    @property
    def ended(self) -> Event | None:
        """Its last word, if it had one."""
        return next((event for event in reversed(self.events) if event.event == "ended"), None)

    @property
    def outcome(self) -> str:
        """How it ended; ``open``: it may still train; ``vanished``: it left no word and another came."""
        for event in reversed(self.events):
            if outcome := outcome_of(event):
                return outcome
        return "open" if self.after is None else "vanished"

    @property
    def why(self) -> str:
        """What the training said as it failed, if it failed for good."""
        return words(self.ended, "message") if self.ended is not None and self.outcome == "failed" else ""

    @property
    def steps_lost(self) -> int | None:
        """Steps that were trained and had to be trained again, as far as anyone can know."""
        if self.ended is None or self.reached_step is None:
            return None
        after = self.after
        if after is None or after.adoption is None or after.adoption.rewind or after.from_step is None:
            lost = number(self.ended, "steps_lost")
            return None if lost is None else int(lost)
        return max(0, self.reached_step - after.from_step)

    @property
    def lost_between(self) -> tuple[int, int | None] | None:
        """At least and at most, for a life that vanished: it wrote from time to time how far it was.

        Had it lived until the next time, it would have written again. Where it wrote nothing the most is not
        known.
        """
        after = self.after
        if self.outcome != "vanished" or self.reached_step is None or after is None:
            return None
        if after.adoption is None or after.adoption.rewind or after.from_step is None:
            return None
        least = max(0, self.reached_step - after.from_step)
        last = next((event for event in reversed(self.events) if event.event == REACHED), None)
        if last is None:
            return least, None
        step, pace, every = (number(last, name) for name in ("step", "step_seconds", "every_seconds"))
        if step is None or not pace or every is None:
            return least, None
        return least, max(least, int(step + (every + LATE_SECONDS) / pace) - after.from_step)

    @property
    def recovery_seconds(self) -> float | None:
        """From the agent's start to the first step."""
        return next((number(event, "seconds") for event in self.events if event.event == "training"), None)


def read_story(store: ObjectStore, run: str) -> list[LifeStory]:
    """All lives of ``run``, oldest first. What is damaged is left out: a page for people goes on."""
    keys = (layout.parse_claim(run, info.key) for info in store.list(layout.lives(run)))
    numbers = sorted({key.life for key in keys if key})
    saved = listed(store, run)
    told: dict[int, LifeStory] = {}

    def read(number: int) -> None:
        told[number] = LifeStory(
            number=number,
            claim=_unless_damaged(lambda: read_claim(store, run, number)),
            adoption=_unless_damaged(lambda: read_adoption(store, run, number)),
            checkpoints=tuple(found for found in saved if found.life == number),
            events=tuple(read_events(store, run, life=number)),
        )

    each(numbers, read, workers=workers_for(store))
    story: list[LifeStory] = []
    for number in reversed(numbers):
        story.append(replace(told[number], after=story[-1] if story else None))
    return story[::-1]


def number(event: Event, name: str) -> float | None:
    """A detail that is a number, or None."""
    value = event.details.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def words(event: Event, name: str) -> str:
    """A detail that is text, or nothing."""
    value = event.details.get(name)
    return value if isinstance(value, str) else ""


def outcome_of(event: Event | None) -> str | None:
    """How a life ended, if this event, its last one, says so."""
    if event is None or event.event not in {"ended", "superseded"}:
        return None
    return words(event, "outcome") or event.event


def _unless_damaged(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (Damaged, NotFound):
        return None
