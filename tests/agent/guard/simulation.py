"""A life on a simulated clock: training, uploads and notices around the real planner and end game.

A discrete-event simulator: time jumps to whatever happens next. What the guard does about it is done here by
the same parts that the guard uses (``EndGame``, ``Measured``, ``Pace``), in the order in which it does it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from outlive_agent.endgame import EndGame
from outlive_agent.measured import Figures, Measured, Progress
from outlive_agent.pace import Pace
from outlive_agent.planner import Plan, needed
from outlive_agent.settings.values import Every

LOOKS = 50
"""How often the guard looks at the world during a window: less often than the real one, which is harder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Everything that chance decides. ``jitter``: steps, copies and uploads stray by up to this share.

    ``slows``: from the notice on the store takes this many times longer. ``failing``: share of the uploads
    that fail. ``earlier``: a second notice comes, whose deadline lies half this share of the window earlier.
    """

    step: float
    copy: float
    size: int
    rate: float
    every: float
    notice_at: float
    window: float
    jitter: float = 0.0
    slows: float = 1.0
    failing: float = 0.0
    earlier: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class Upload:
    """A snapshot of this step, on its way."""

    step: int
    began: float
    ends: float
    fails: bool
    last: bool


@dataclass(slots=True)
class Outcome:
    """What was decided, and what came of it."""

    deadline: float = 0.0
    plans: list[tuple[float, Plan, Figures]] = field(default_factory=list)
    trained: int = 0
    stopped_at: float | None = None
    saved: list[tuple[float, int]] = field(default_factory=list)
    """When a checkpoint was complete, and of which step; in time only."""
    dropped: int = 0

    @property
    def newest(self) -> int | None:
        return self.saved[-1][1] if self.saved else None

    @property
    def lost(self) -> int:
        return self.trained - (self.newest or 0)


class Simulation:
    """Run it once."""

    def __init__(self, schedule: Schedule) -> None:
        self.plan = schedule
        self.random = Random(schedule.seed)  # noqa: S311 - chance, not secrets
        self.now = 0.0
        self.game = EndGame(grace_seconds=30.0)
        self.measured = Measured()
        self.pace = Pace(Every(duration=timedelta(seconds=schedule.every)))
        self.outcome = Outcome()
        self.uploads: list[Upload] = []
        """Under way, and the one that waits."""
        self.asked: tuple[bool, int] | None = None
        self.boundary = (0, 0.0)
        self.next_boundary = 0.0
        self.stopped = False

    def run(self) -> Outcome:
        schedule = self.plan
        end = schedule.notice_at + schedule.window
        self.outcome.deadline = end
        notices = [(schedule.notice_at, "first", end)]
        if schedule.earlier:
            sooner = schedule.notice_at + schedule.window * (1 - schedule.earlier / 2)
            notices.append((schedule.notice_at + schedule.window / 4, "second", sooner))
            self.outcome.deadline = end = sooner
        self.pace.started(0.0)
        self.next_boundary = self._step_seconds()
        while True:
            self._happen(notices)
            self._tick()
            if self.now >= end:
                break
            self._advance(end, notices)
        self.outcome.trained = self.boundary[0]
        return self.outcome

    # -- the world

    def _advance(self, end: float, notices: list[tuple[float, str, float]]) -> None:
        """To whatever happens next. Steps in which nothing is asked for are passed in one go."""
        look = self.plan.window / LOOKS if self.now >= self.plan.notice_at else max(2.0, self.plan.every / 2)
        times = [end, self.now + look, *(at for at, _, _ in notices)]
        times += [upload.ends for upload in self.uploads[:1]]
        planned, due = self.game.next_at(), self._due_at()
        times += [at for at in (planned, due) if at is not None]
        if self.asked is not None and not self.stopped:
            times.append(self.next_boundary)
        ahead = [at for at in times if at > self.now]
        self.now = min(ahead)
        if self.stopped:
            return
        while self.next_boundary <= self.now:
            self.boundary = (self.boundary[0] + 1, self.next_boundary)
            if self.asked is not None and self._snapshot():
                break
            many = math.floor((self.now - self.next_boundary) / self.plan.step) if self.asked is None else 0
            if many > 10:  # the mean of many strays little
                self.boundary = (self.boundary[0] + many, self.next_boundary + many * self.plan.step)
                self.next_boundary = self.boundary[1]
            self.next_boundary += self._step_seconds()

    def _happen(self, notices: list[tuple[float, str, float]]) -> None:
        while self.uploads and self.uploads[0].ends <= self.now:
            self._uploaded(self.uploads.pop(0))
        while notices and notices[0][0] <= self.now:
            _, name, deadline = notices.pop(0)
            if self.game.stopping:
                continue
            figures = self._figures()
            plan = self.game.noticed(name, deadline=deadline, now=self.now, figures=figures)
            self.outcome.plans.append((self.now, plan, figures))
            if plan.save_now:
                self._ask(stop=False)

    def _snapshot(self) -> bool:
        """At a boundary: take what was asked for. True if the training stops with it."""
        assert self.asked is not None
        stop, _ = self.asked
        if not stop and self.uploads:
            return False  # the arena is not free
        at = self.boundary[1]
        copy = self._stray(self.plan.copy)
        self.asked = None
        self.measured.copied(copy)
        self.pace.taken(at)
        begins = max(at + copy, self.uploads[0].ends if self.uploads else 0.0)
        del self.uploads[1:]  # a newer one takes the place of one that waits
        self.uploads.append(self._upload(begins, last=stop))
        self.next_boundary += copy
        if stop:
            self.stopped = True
            self.outcome.stopped_at = at + copy
        return stop

    def _upload(self, begins: float, *, last: bool) -> Upload:
        slow = self.plan.slows if begins >= self.plan.notice_at else 1.0
        seconds = self._stray(slow * self.plan.size / self.plan.rate)
        return Upload(
            step=self.boundary[0],
            began=begins,
            ends=begins + seconds,
            fails=self.random.random() < self.plan.failing,
            last=last,
        )

    def _uploaded(self, upload: Upload) -> None:
        if upload.fails:
            self.pace.failed(upload.ends)
            if self.stopped and not self.uploads:  # nobody is left to bring a newer one: it is tried again
                self.uploads.append(self._upload(upload.ends, last=True))
            return
        self.pace.saved()
        self.measured.uploaded(self.plan.size, upload.ends - upload.began)
        self.outcome.saved.append((upload.ends, upload.step))

    # -- the guard

    def _tick(self) -> None:
        if self.boundary[0]:
            self.measured.stepped(*self.boundary, mean=self.plan.step)
        figures = self._figures()
        changed = self.game.replan(self.now, figures)
        if changed is not None:
            self.outcome.plans.append((self.now, changed, figures))
        if self.game.due(self.now):
            plan = self.game.plan
            if plan is not None and plan.drop_in_flight and self.uploads:
                self.outcome.dropped += 1
                del self.uploads[0]
            self._ask(stop=True)
            self.game.ask("notice", self.now)
        due = self._due_at()
        stop_at = self.game.stop_at
        late = stop_at is not None and self.now + needed(figures).safe > stop_at
        if due is not None and due <= self.now and not late:
            self._ask(stop=False)

    def _due_at(self) -> float | None:
        if self.game.stopping or self.uploads or self.asked is not None:
            return None
        return self.pace.due_at(self._figures())

    def _ask(self, *, stop: bool) -> None:
        if not self.stopped:
            self.asked = (stop, self.boundary[0])

    def _figures(self) -> Figures:
        if not self.uploads or self.uploads[0].began > self.now:
            return self.measured.figures()
        current = self.uploads[0]
        share = min(1.0, (self.now - current.began) / (current.ends - current.began))
        done = int(self.plan.size * share)
        return self.measured.figures(
            Progress(done=done, total=self.plan.size, sent=done, seconds=self.now - current.began)
        )

    def _step_seconds(self) -> float:
        return self._stray(self.plan.step)

    def _stray(self, seconds: float) -> float:
        return seconds * self.random.uniform(1 - self.plan.jitter, 1 + self.plan.jitter)


def simulate(schedule: Schedule) -> Outcome:
    """What comes of it."""
    run: Callable[[], Outcome] = Simulation(schedule).run
    return run()
