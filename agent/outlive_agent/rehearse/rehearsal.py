"""The conductor: which legs there are, where each begins and ends, and what is compared with what."""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outlive.errors import ConfigError, OutliveError
from outlive.staging.rehearsal import Orders
from outlive.store.newest import read_manifest
from outlive_agent.exits import Exit
from outlive_agent.rehearse.causes import NOTHING, Cause, causes, stored_causes
from outlive_agent.rehearse.compare import Compared, Difference, count, first_difference
from outlive_agent.rehearse.evidence import Evidence
from outlive_agent.rehearse.images import Images, compare
from outlive_agent.rehearse.leg import Leg, Running, run_leg, tail
from outlive_agent.rehearse.reclaim import Way, prepared
from outlive_agent.rehearse.site import Site
from outlive_agent.units import bytes_text

LONGEST_SECONDS = 7 * 24 * 3600.0
SPARE_SECONDS, SPARE_FACTOR = 300.0, 10.0
"""How long a resumed leg may take, beside the time of the uninterrupted one."""
FEWEST_STEPS = 3
MORE_CHECKPOINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """``steps`` or ``seconds``, whichever comes first, end the uninterrupted leg; 0 is no such bound."""

    steps: int
    seconds: float
    seed: int
    way: Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What all legs together showed."""

    wanted: Wanted
    legs: tuple[Leg, ...]
    compared: Compared
    bytes: int
    """The size of the state."""
    images: Images | None
    """The checkpoints at the ends of the uninterrupted run and of the resumed one, where both got there."""
    difference: Difference | None = None
    causes: tuple[Cause, ...] = ()

    @property
    def equal(self) -> bool:
        alike = self.difference is None and self.images is not None and self.images.equal
        return alike and not self.empty

    @property
    def empty(self) -> bool:
        """Whether neither a metric nor a tensor was there to compare, so that nothing is proved."""
        return self.images is not None and not (self.images.tensors or self.compared.metrics)


class Rehearsal:
    """``progress`` hears of the leg under way and the step it is at, ``done`` of every one that has ended."""

    def __init__(
        self, site: Site, wanted: Wanted, *, progress: Callable[[str, int], None], done: Callable[[Leg], None]
    ) -> None:
        self._site = site
        self._wanted = wanted
        self._draw = random.Random(wanted.seed)  # noqa: S311 - where to strike, not a secret
        self._progress = progress
        self._done = done
        self._legs: list[Leg] = []

    def run(self) -> Outcome:
        """All legs, until one differs or all are equal."""
        first = self._uninterrupted()
        begin = self._fork(first)
        size = self._checked_size(first)
        compared = Compared()
        for name, until in (("reclaimed", None), ("resumed", first.last)):
            leg = self._reclaimed(first, begin, size=size) if name == "reclaimed" else self._resumed(first)
            found = first_difference(first, leg, until=until)
            compared += count(first, leg, before=found.step if found else None)
            if found is not None:
                control = self._control(leg)
                evidence = Evidence(
                    found=found,
                    uninterrupted=first,
                    control=control,
                    control_differs=first_difference(leg, control) is not None,
                )
                return Outcome(
                    wanted=self._wanted,
                    legs=tuple(self._legs),
                    compared=compared,
                    bytes=size,
                    images=None,
                    difference=found,
                    causes=tuple(causes(evidence)),
                )
        images = compare(self._site.store(), self._site.run, first.saved[-1], leg.saved[-1])
        same = Outcome(
            wanted=self._wanted, legs=tuple(self._legs), compared=compared, bytes=size, images=images
        )
        if same.equal:
            return same
        why = (NOTHING,) if same.empty else tuple(self._stored_causes(images, leg))
        return replace(same, legs=tuple(self._legs), causes=why)

    def _stored_causes(self, images: Images, leg: Leg) -> Iterator[Cause]:
        """Of a state too large for the diaries, which differs where it was saved: less can be known."""
        control = self._control(leg)
        again = compare(self._site.store(), self._site.run, leg.saved[-1], control.saved[-1])
        yield from stored_causes(images, again)

    def _checked_size(self, first: Leg) -> int:
        """The state's size. ``ConfigError`` where the legs to come would fill the disk with checkpoints."""
        store = self._site.store()
        size = read_manifest(store, self._site.run, first.saved[-1]).total_bytes
        free = shutil.disk_usage(self._site.directory).free
        if free < MORE_CHECKPOINTS * size:
            raise ConfigError(
                f"{bytes_text(free)} are free in {self._site.directory}, and {MORE_CHECKPOINTS} more "
                f"checkpoints of {bytes_text(size)} have to go there",
                hint="name a larger place with --scratch",
            )
        return size

    def _uninterrupted(self) -> Leg:
        wanted = self._wanted
        save_at = self._draw.randint(1, max(1, wanted.steps // 2)) if wanted.steps else 0
        share = self._draw.uniform(0.1, 0.5)
        leg = self._leg(
            "uninterrupted",
            save_at=save_at,
            save_after_seconds=wanted.seconds * share,
            stop_at=wanted.steps,
            stop_after_seconds=wanted.seconds,
        )
        return leg

    def _fork(self, first: Leg) -> int:
        """The step at which the second leg begins: one that the first saved on its way."""
        steps = [checkpoint.step for checkpoint in first.saved if checkpoint.step <= first.last - 2]
        if not steps:
            enough = first.last >= FEWEST_STEPS
            hint = f"outlive rehearse --steps {first.last}" if enough else "give it more data or epochs"
            raise OutliveError(
                f"the training ended after {first.last} steps, too early to be reclaimed on its way",
                hint=hint,
            )
        return steps[0]

    def _reclaimed(self, first: Leg, begin: int, *, size: int) -> Leg:
        strike_at = self._draw.randint(begin + 1, first.last - 1)
        killed = self._wanted.way.by == "sigkill" and strike_at > begin + 1
        save_at = self._draw.randint(begin + 1, strike_at - 1) if killed else 0
        with prepared(self._wanted.way, size=size) as (surroundings, strike):

            def watch(running: Running) -> None:
                if running.struck_at is None and running.step >= strike_at:
                    running.struck_at = running.seconds
                    strike(running)

            leg = self._leg(
                "reclaimed",
                rewind=begin,
                environ=surroundings,
                watch=watch,
                save_at=save_at,
                stop_at=first.last,
                hold_from=strike_at,
            )
        if leg.struck_seconds is None:
            raise OutliveError(
                f"the training could not be taken away at step {strike_at}: it ended at step {leg.last}",
                hint=f"what it said last:\n{tail(leg.log)}",
            )
        return leg

    def _resumed(self, first: Leg) -> Leg:
        stopped = first.code != 0
        return self._leg("resumed", stop_at=first.last if stopped else first.last + 1)

    def _control(self, leg: Leg) -> Leg:
        """Once more from where that leg began, as far as it came: chance shows late at times."""
        return self._leg("control", rewind=leg.first, stop_at=leg.last)

    def _leg(
        self,
        name: str,
        *,
        rewind: int | None = None,
        environ: Mapping[str, str] | None = None,
        watch: Callable[[Running], None] = lambda _: None,
        **orders: float,
    ) -> Leg:
        number = len(self._legs) + 1
        diary = self._site.directory / f"{number}-{name}.jsonl"
        running = Running(self._site, _orders(diary, orders), rewind=rewind, environ=environ or {})

        def look(running: Running) -> None:
            watch(running)
            self._progress(name, running.step)

        limit = LONGEST_SECONDS
        if self._legs:
            limit = SPARE_SECONDS + SPARE_FACTOR * self._legs[0].seconds
        leg = run_leg(running, name=name, limit_seconds=limit, watch=look)
        # A last save that did not fit is a finding, not a failure: the steps are done again.
        taken = name == "reclaimed" and (self._wanted.way.by == "sigkill" or leg.code == Exit.SAVE_FAILED)
        if leg.last < 1:
            raise OutliveError(
                f"the command ended with exit code {leg.code} before its first step",
                hint=f"does it call outlive.attach and run.step? It said last:\n{tail(leg.log)}",
            )
        if not leg.well and not taken:
            raise OutliveError(
                f"the {name} leg failed with exit code {leg.code} after step {leg.last}",
                hint=f"what it said last:\n{tail(leg.log)}",
            )
        self._legs.append(leg)
        self._done(leg)
        return leg


def _orders(diary: Path, given: Mapping[str, float]) -> Orders:
    return Orders(
        diary=str(diary),
        save_at=int(given.get("save_at", 0)),
        save_after_seconds=given.get("save_after_seconds", 0.0),
        stop_at=int(given.get("stop_at", 0)),
        stop_after_seconds=given.get("stop_after_seconds", 0.0),
        hold_from=int(given.get("hold_from", 0)),
    )
