"""What a training script touches: ``attach`` and the ``Run`` it gives."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from outlive.errors import ConfigError, OutliveError, StateError
from outlive.staging.messages import Outcome
from outlive.staging.rehearsal import VARIABLE as REHEARSAL
from outlive.staging.rehearsal import Orders
from outlive.store.layout import CheckpointId
from outlive.train import environment, places, rng, settings
from outlive.train.boundary import Accumulation, Pace, Stand
from outlive.train.company import Alone, attach_or_exit, company
from outlive.train.ending import Ending
from outlive.train.link import Given, Link
from outlive.train.loops import Loops
from outlive.train.orphans import check_orphans
from outlive.train.reason import reason_of
from outlive.train.replaced import replaced_line
from outlive.train.resume import Resume
from outlive.train.saving import say
from outlive.train.state import State, Unseen
from outlive.train.stop import EXIT_RESUME, Signals
from outlive.train.tracked import Tracked, is_tracked
from outlive.train.trees import refilled
from outlive.train.unkept import unkept, unkept_line
from outlive.train.values import Encoder

if TYPE_CHECKING:
    from outlive.train.rehearsal import Witness

T = TypeVar("T")


def attach(
    *, run: str | None = None, store: str | None = None, every: int | str | None = None, **objects: Any
) -> "Run":
    """Make this training outlive its process: restore what was saved, and save from now on.

    Each of `objects` that has ``state_dict`` and ``load_state_dict`` is kept by reference and is restored
    when this returns; any other becomes ``run.state.<name>``, with the value given here unless one was saved.
    The names `run`, `store` and `every` are therefore not free for objects.

    `run` names the run and `store` says where it is kept (a directory or ``s3://bucket/prefix``); where an
    agent runs this process, it knows both. `every` is how often to save: a number of steps, or text such as
    "10m".
    """
    places.check_process()
    standing = company()
    wishes = settings.check(run=run, store=store, every=every)
    places.drop_former((wishes.run, wishes.store))
    signals = Signals()
    if not signals.install():
        say("not in the main thread, so signals do not stop this run; its agent still can")
    try:
        link, given = attach_or_exit(standing, wishes.environment(), signals)
    except BaseException:
        signals.remove()
        raise
    if os.environ.get(REHEARSAL):
        wishes = replace(wishes, every=None)  # a rehearsal has its own
    attached = Run(link, signals, wishes=wishes, first=given, standing=standing)
    signals.alone = link.welcome.mode == "sidecar"  # a Ctrl-C is for us; `outlive exec` hears it, too
    try:
        for line in wishes.overruled(link.welcome):
            say(line)
        attached._begin(objects, given)
        attached._witness = attached._rehearsed(os.environ)
    except BaseException as why:
        if isinstance(why, OutliveError):
            _say_hint(why)
        attached._close("exception", reason_of(why))
        raise
    places.attached(attached)
    return attached


class Run:
    """One life of a run. Made by ``attach``; a context manager around the whole training."""

    state: State
    """Plain values that are saved and restored: ``run.state.best = 0.93``."""

    restored_from: CheckpointId | None
    """The checkpoint this life resumed from; None if it started from nothing."""

    def __init__(
        self,
        link: Link,
        signals: Signals,
        *,
        wishes: settings.Wishes,
        first: Given | None,
        standing: Alone,
    ) -> None:
        self.state = State({})
        self.restored_from = None
        self._unseen = Unseen({})
        self._signals = signals
        self._steps = 0
        self._metrics: Mapping[str, Any] = {}
        self._moving = False
        self._looked = False
        self._tracked = Tracked()
        self._resume: Resume | None = None
        self._pace = Pace()
        self._accumulation = Accumulation(self._tracked)
        self._loops = Loops(on_continue=self._go_on, on_boundary=self._between_epochs, say=say)
        self._standing = standing
        self._saving = standing.saving(link, first, capture=self._capture, hide=wishes.hide)
        self._requests = standing.requests(
            self._saving, signals, every=wishes.every_steps, tracked=self._tracked
        )
        self._witness: Witness | None = None
        self._closed = self._entered = False
        self.asked = (wishes.run, wishes.store)
        """The run and the store that the script named."""

    @property
    def steps(self) -> int:
        """How many steps are finished since the run began, over all lives."""
        return self._steps

    @property
    def stall_seconds(self) -> float:
        """What the newest save has cost this training; 0 before the first save of this life."""
        return self._saving.stall_ns / 1e9

    def epochs(self, count: int) -> Iterator[int]:
        """``range(count)``, going on where the run stopped."""
        self._tell_replaced()
        epochs = self._loops.epochs(count)
        return epochs if self._witness is None else self._witness.epochs(epochs)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of `loader`, going on after the last one that a saved step had used."""
        self._tell_replaced()
        batches = self._loops.batches(loader)
        return batches if self._witness is None else self._witness.batches(batches)

    def step(self, **metrics: Any) -> None:
        """The boundary, as the last line of the loop's body: here, and only here, the state is whole.

        `metrics` go into the checkpoint's manifest. They are turned into numbers only when one is saved.
        """
        self._steps += 1
        self._metrics = {name: _plain(value) for name, value in metrics.items()}
        now = self._pace.tick()
        page = self._saving.link.page
        if self._closed:
            raise ConfigError("run.step() after the run was left", hint="it belongs inside the 'with' block")
        page.boundary(self._steps, now_ns=now, epoch=self._loops.epoch, step_ns=self._pace.step_ns)
        if not self._moving:
            self._first_boundary()
        elif not self._looked:
            self._look_around(sys._getframe(1))
        if self._witness is not None:
            self._witness.boundary(self._stand(), sys._getframe(1))
        self._saving.land(wait=False)
        if self._requests.due(self._steps):
            self._save(between=False)
        self._accumulation.passed()

    def save(self) -> None:
        """Ask for a save at the next boundary."""
        self._requests.by_hand = True

    def track(self, **objects: Any) -> None:
        """Keep objects that could not exist yet at ``attach``. What was saved of them is restored at once."""
        for name, target in objects.items():
            if not is_tracked(target):
                raise ConfigError(
                    f"{name} has no state_dict() and load_state_dict()",
                    hint=f"use run.state.{name} for a value",
                )
            if name in self.state:
                raise ConfigError(
                    f"{name} is a value on run.state already", hint="give the object another name"
                )
            self._tracked.add(name, target)
        if self._resume is not None:
            self._resume.check_names(objects=objects, values={})
            self._resume.claim(self._tracked)

    def close(self) -> None:
        """Leave the run, as the end of a ``with`` block does: its end is saved. Harmless twice."""
        self.__exit__(None, None, None)

    def drop(self) -> None:
        """Leave the run without a save. Harmless twice."""
        if self._closed:
            return
        if self._requests.leaving:
            self._close("stopped", "")
            return
        say("this run was attached before and never left: what it did since its last save is dropped")
        self._close("exception", "left without a save")

    def __enter__(self) -> "Run":
        if self._signals.received:
            self._close("stopped", "before the first step")
            raise SystemExit(EXIT_RESUME)
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        outcome: Outcome = "exception"
        if error is None and not self._moving and not self._steps:
            self._standing.say("run.step() was never called, so nothing of this training was saved")
        self._standing.leave()
        try:
            outcome = self._ending().leave(error)
        finally:
            self._close(outcome, "" if error is None else reason_of(error))

    def _rehearsed(self, environ: Mapping[str, str]) -> "Witness | None":
        """Who keeps the diary of this life, if it is one of a rehearsal."""
        text = environ.get(REHEARSAL)
        if not text:
            return None
        from outlive.train.rehearsal import Witness  # late: nobody else needs it

        return Witness(
            Orders.decode(text),
            capture=self._capture,
            tracked=self._tracked,
            saving=self._saving,
            requests=self._requests,
            signals=self._signals,
        )

    def _ending(self) -> Ending:
        return Ending(
            saving=self._saving,
            requests=self._requests,
            stand=self._stand(),
            whole=self._loops.fetching and not self._accumulation.half_done(between=True),
            alone=type(self._standing) is Alone,
        )

    def _begin(self, objects: Mapping[str, Any], given: Given | None) -> None:
        values = {name: value for name, value in objects.items() if not is_tracked(value)}
        encoder = Encoder()
        for name, value in values.items():
            encoder.encode(value, at=f"run.state.{name}")
        encoder.check()
        for name, target in objects.items():
            if name not in values:
                self._tracked.add(name, target)
        if given is None:
            self.state = State(values)
            began = "nothing to resume from, starting at step 0"
        else:
            self._restore(Resume(given), objects, values)
            began = f"resumed at step {self._steps} from {given.packet.source}"
            self._doubt()
        welcome = self._saving.link.welcome
        if (
            welcome.mode == "daemon" and self._standing.first
        ):  # the others share our terminal, and say it themselves
            say(f"run {welcome.run}, life {welcome.life}: {began}")
        self._saving.step = self._steps
        self._saving.link.page.boundary(self._steps, now_ns=0, epoch=None, step_ns=0)
        self._standing.begin(self._steps)

    def _restore(self, resume: Resume, objects: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        tracked = {name: target for name, target in objects.items() if name not in values}
        resume.check_names(objects=tracked, values=values)
        claimed = resume.claim(self._tracked)
        for name in [name for name in tracked if name not in claimed]:
            self._standing.say(f"{name} is not in the checkpoint and starts anew")
        here = refilled(values, resume.values)
        self._unseen = Unseen({name: here[name] for name in resume.values})
        self.state = State(here, self._unseen)
        self._loops.load(resume.loops)
        self._steps = resume.steps
        self.restored_from = resume.checkpoint
        self._resume = resume

    def _tell_replaced(self) -> None:
        """The loop begins: what was set up to here is meant as a start, and hides what was saved."""
        for name, saved in self._unseen.replaced().items():
            line = None if self._moving else replaced_line(name, saved, vars(self.state)[name])
            if line is not None:
                self._standing.say(line)

    def _doubt(self) -> None:
        if self._resume is None:
            return
        before = rng.capture()
        reasons = self._resume.restore_rng() + self._resume.doubts()
        if self._loops.pending:
            # They are set where the loop goes on. What is made from here to there, such as a random
            # split of the data, must come out as in the first life.
            rng.restore(before)
        if reasons:
            self._standing.say(f"this resume may not be bit-exact: {'; '.join(reasons)}")

    def _capture(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "objects": self._tracked.capture(),
            "state": dict(vars(self.state)),
            "rng": rng.capture(),
            "loops": self._loops.state(),
            "environment": environment.describe(),
        }

    def _go_on(self) -> None:
        if self._resume is not None:
            self._resume.restore_rng()

    def _between_epochs(self) -> None:
        if self._requests.due(None):
            self._save(between=True)

    def _save(self, *, between: bool) -> None:
        half_done = self._accumulation.half_done(between=between)
        try:
            self._requests.serve(self._stand(), half_done=half_done)
        except SystemExit:
            self._loops.close()  # before the loop unwinds, which would wait for its workers
            raise

    def _stand(self) -> Stand:
        return Stand(step=self._steps, epoch=self._loops.epoch, metrics=self._metrics)

    def _first_boundary(self) -> None:
        """What can be known only now: whether the state can be saved at all, and what was forgotten."""
        if self._resume is not None:
            self._resume.detach()  # first: once memory is asked for, another rank may copy over the image
        self._standing.first_boundary(self._tracked)
        try:
            self._saving.check()
            check_orphans(self._tracked, vars(self.state))
        except StateError as why:
            _say_hint(why)
            raise
        for name in self._tracked.forgotten_schedulers():
            self._standing.say(
                f"{name} has a scheduler that is not tracked: hand it to attach(), or it restarts on resume"
            )
        if self._resume is not None:
            for name in self._resume.unclaimed:
                self._standing.say(
                    f"the checkpoint holds {name}, which nothing has claimed; it is not saved again"
                )
        if not self._entered:
            self._standing.say(
                "attached without 'with', so the end is saved only if the script calls run.close()"
            )
        self._moving = True

    def _look_around(self, frame: FrameType) -> None:
        """Once, when the loop's own variables have been through a turn: what of them a resume will lose."""
        self._looked = True
        names = unkept(frame, kept=vars(self.state))
        if names:
            self._standing.say(unkept_line(names))

    def _close(self, outcome: Outcome, message: str) -> None:
        self._closed = True
        places.left(self)
        self._signals.remove()
        if self._witness is not None:
            self._witness.close()
        self._accumulation.close()
        self._loops.close()
        self._saving.land()
        self._standing.close(outcome)
        self._saving.end(outcome, step=self._steps, message=message)


def _say_hint(why: OutliveError) -> None:
    if why.hint and sys.version_info < (3, 11):  # later Pythons show it in the traceback
        say(f"Try: {why.hint}")


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
