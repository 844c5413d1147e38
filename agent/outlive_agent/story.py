"""What became of each life of a run, from what the store holds: claims, adoptions, checkpoints, events."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import decode
from outlive.store.flight import each, workers_for
from outlive.store.layout import CheckpointId, EventKey
from outlive.store.lives import Adoption, Claim, read_adoption, read_claim
from outlive.store.newest import listed

_AT_MOST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. ``figures`` are the members beyond name and time, as they were written."""

    life: int
    sequence: int
    name: str
    at: datetime
    figures: Mapping[str, object]

    def number(self, name: str) -> float | None:
        """A figure that is a number, or None."""
        value = self.figures.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def text(self, name: str) -> str:
        """A figure that is text, or nothing."""
        value = self.figures.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStory:
    """One life. What isn't known is None: a machine that vanished wrote nothing more."""

    number: int
    claim: Claim | None
    adoption: Adoption | None
    checkpoints: tuple[CheckpointId, ...]
    events: tuple[Event, ...]
    superseded_by: "LifeStory | None"
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
        steps = [event.number("step") for event in self.events] + [found.step for found in self.checkpoints]
        return max((int(step) for step in steps if step is not None), default=self.from_step)

    @property
    def ended(self) -> Event | None:
        """Its last word, if it had one."""
        return next((event for event in reversed(self.events) if event.name == "ended"), None)

    @property
    def outcome(self) -> str:
        """How it ended; ``open``: it may still train; ``vanished``: it left no word and another came."""
        if self.ended is not None:
            return self.ended.text("outcome") or "ended"
        if any(event.name == "superseded" for event in self.events):
            return "superseded"
        return "open" if self.superseded_by is None else "vanished"

    @property
    def steps_lost(self) -> int | None:
        """Steps that were trained and had to be trained again, as far as anyone can know."""
        if self.ended is None or self.reached_step is None:
            return None
        after = self.superseded_by
        if after is None or after.adoption is None or after.adoption.rewind or after.from_step is None:
            lost = self.ended.number("steps_lost")
            return None if lost is None else int(lost)
        return max(0, self.reached_step - after.from_step)

    @property
    def recovery_seconds(self) -> float | None:
        """From the agent's start to the first step."""
        return next((event.number("seconds") for event in self.events if event.name == "training"), None)


def read_story(store: ObjectStore, run: str) -> list[LifeStory]:
    """All lives of ``run``, oldest first. What is damaged is left out: a page for people goes on."""
    numbers = sorted({key.life for key in _claims(store, run)})
    keys = [key for info in store.list(layout.histories(run)) if (key := layout.parse_history(run, info.key))]
    claims: dict[int, Claim] = {}
    adoptions: dict[int, Adoption] = {}
    events: dict[EventKey, Event] = {}

    def read(item: int | EventKey) -> None:
        try:
            if isinstance(item, EventKey):
                events[item] = _event(store, run, item)
                return
            claims[item] = read_claim(store, run, item)
            adoption = read_adoption(store, run, item)
            if adoption is not None:
                adoptions[item] = adoption
        except (Damaged, NotFound):
            return

    items: list[int | EventKey] = [*numbers, *keys]
    each(items, read, workers=workers_for(store))
    saved = listed(store, run)
    told = sorted(events.values(), key=lambda event: (event.life, event.sequence))
    return _chained(numbers, claims, adoptions, saved=saved, events=told)


def _chained(
    numbers: Sequence[int],
    claims: Mapping[int, Claim],
    adoptions: Mapping[int, Adoption],
    *,
    saved: Sequence[CheckpointId],
    events: Sequence[Event],
) -> list[LifeStory]:
    story: list[LifeStory] = []
    for number in reversed(numbers):
        life = LifeStory(
            number=number,
            claim=claims.get(number),
            adoption=adoptions.get(number),
            checkpoints=tuple(found for found in saved if found.life == number),
            events=tuple(event for event in events if event.life == number),
            superseded_by=story[-1] if story else None,
        )
        story.append(life)
    return story[::-1]


def _claims(store: ObjectStore, run: str) -> list[layout.ClaimKey]:
    return [key for info in store.list(layout.lives(run)) if (key := layout.parse_claim(run, info.key))]


def _event(store: ObjectStore, run: str, key: EventKey) -> Event:
    name = layout.history(run, key.life, sequence=key.sequence, event=key.event)
    raw = store.get(name, at_most=_AT_MOST)
    at = decode(raw, "event", where=name).time("at")
    known = {"format", "version", "life", "event", "at"}
    figures = {member: value for member, value in json.loads(raw).items() if member not in known}
    return Event(life=key.life, sequence=key.sequence, name=key.event, at=at, figures=figures)
