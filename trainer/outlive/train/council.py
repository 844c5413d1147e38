"""How the ranks agree on a step to save, without a collective (docs/RANKS.md, "One step for all").

Each rank has a council. Its thread calls ``tick``, which never waits for another rank; the training's own
thread sets ``step`` and compares it with ``target``.
"""

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from outlive.staging.messages import REASONS, Reason
from outlive.train.boundary import Want

NEVER: Final = 1 << 62
ANSWER_SECONDS = 10.0
"""How long a rank may take to answer before its silence is a no."""
PLAN_SECONDS = 0.1
"""What a plan takes to reach every rank, at first; doubled when one was past it already."""
LONGEST_PLAN_SECONDS = 5.0
LEAD_SECONDS = 0.5
"""How long before the step of an interval the ranks are asked."""
AGAIN_SECONDS = 0.5
"""Between two tries for the same wish."""
BUSY_PERIOD, SHORTEST_PERIOD, LONGEST_PERIOD = 0.005, 0.02, 0.2
_SETTLE_SECONDS = 0.001


class JobStore(Protocol):
    """What is used of ``torch.distributed.Store``: nothing that waits for a key."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What all ranks do at the first whole boundary at or after ``step``, if the verdict is a go."""

    round: int
    step: int
    reason: Reason
    stop: bool
    alike: bool = False
    """Whether all ranks hold alike what they should: then one of them stores it for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hall:
    """What a council knows of its rank. ``memory``: None, or why no snapshot could be taken now."""

    rank: int
    world: int
    memory: Callable[[bool], str | None] = lambda stop: None
    permit: Callable[[Agreed], None] = lambda agreed: None
    every: Callable[[], int] = lambda: 0
    step_seconds: Callable[[], float] = lambda: 0.0
    say: Callable[[str], None] = lambda line: None


Phase = Literal["idle", "asked", "acked", "going"]


class Council:
    """One rank's seat."""

    def __init__(self, hall: Hall, store: JobStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = NEVER
        """The step at which something is to be done; read by the training at every boundary."""
        self.step = 0
        """The step that the training has reached; written by it before it reads ``target``."""
        self.over: str | None = None
        """Why nothing can be agreed any more: the job's store is gone."""
        self.hall = hall
        self.fingerprint: dict[str, list[int]] = {}
        """Of what several ranks should hold alike, by these ranks (`placing.fingerprint`)."""
        self._store = store
        self._clock = clock
        self._wishes: deque[Want] = deque()
        self._agreed: Agreed | None = None
        self._phase: Phase = "idle"
        self._round = 0
        self._left = False
        self._changed = threading.Condition()
        self._verdicts: dict[int, bool] = {}
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the training's thread

    def wish(self, want: Want) -> None:
        """Ask for a save by all ranks."""
        self._wishes.append(want)
        self._woken.set()

    @property
    def agreed(self) -> Agreed | None:
        """What is to be done at ``target``; not yet by a verdict."""
        return self._agreed

    def go(self, agreed: Agreed) -> bool:
        """Wait for the verdict, which is normally long known. False: this rank must not save now."""
        with self._changed:
            self._changed.wait_for(
                lambda: agreed.round in self._verdicts or self.over is not None, 2 * ANSWER_SECONDS
            )
            return self._verdicts.setdefault(agreed.round, False)

    def served(self) -> None:
        """What was agreed is done, or can't be done."""
        with self._changed:
            self.target, self._agreed = NEVER, None
            if self._phase == "going":
                self._phase = "idle"
        self._woken.set()

    def leave(self) -> None:
        """The loop is over: no more steps come."""
        self._left = True
        self._woken.set()

    def start(self) -> None:
        """Begin to listen."""
        self._thread = threading.Thread(target=self._run, name="outlive-council", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self.over is None:
            self.over = "closed"
        self._woken.set()
        if self._thread is not None:
            self._thread.join(LONGEST_PERIOD)

    # -- the council's thread

    def _run(self) -> None:
        while self.over is None:
            self._woken.clear()
            try:
                self.tick()
            except Exception as error:  # torch raises its own kinds when the store's host is gone
                self._end(str(error).splitlines()[0] if str(error) else type(error).__name__)
                return
            self._woken.wait(self.period)

    def _end(self, why: str) -> None:
        """Nothing can be agreed any more. While the loop goes on nobody saves it: that must not be silent."""
        with self._changed:
            told, self.over = self.over is not None or self._left, self.over or why
            self._changed.notify_all()
        if not told:
            self.hall.say(f"no more saves: the ranks' store is gone ({why}); the last checkpoint stands")

    @property
    def period(self) -> float:
        """Seconds until the next look."""
        if self._phase in {"asked", "acked"}:
            return BUSY_PERIOD
        return min(max(self.hall.step_seconds() / 4, SHORTEST_PERIOD), LONGEST_PERIOD)

    def tick(self) -> None:
        """Look at what the others say, and answer."""
        self._send_wishes()
        if self._phase == "idle" and self._exists(f"{self._round + 1}/open"):
            self._round += 1
            self._answer_where()
        if self._phase == "asked":
            self._read_plan()
        if self._phase == "acked":
            self._read_verdict()

    def _send_wishes(self) -> None:
        while self._wishes:
            want = self._wishes.popleft()
            number = self._store.add("wishes", 1)
            self._store.set(f"wish/{number}", json.dumps({"reason": want.reason, "stop": want.stop}))

    def _answer_where(self) -> None:
        where = "left" if self._left else str(self.step)
        self._store.set(f"{self._round}/at/{self.hall.rank}", f"{where} {json.dumps(self.fingerprint)}")
        self._phase = "asked"

    def _read_plan(self) -> None:
        if self._exists(f"{self._round}/plan"):
            self._consider(read_plan(self._store.get(f"{self._round}/plan"), self._round))
        elif self._exists(f"{self._round}/verdict"):
            self._phase = "idle"

    def _consider(self, agreed: Agreed) -> None:
        with self._changed:
            self._agreed, self.target = agreed, agreed.step
            self._phase = "acked"
        # The training writes its step, then reads the target; we write the target, then read the step. After
        # the pause each write has left its core's buffer, so at least one of the two sees the other's.
        time.sleep(_SETTLE_SECONDS)
        if self._left:
            answer = "left"
        elif self.step >= agreed.step:
            answer = "late"
        else:
            answer = self.hall.memory(agreed.stop) or "yes"
        self._store.set(f"{self._round}/ack/{self.hall.rank}", answer)

    def _read_verdict(self) -> None:
        if not self._exists(f"{self._round}/verdict"):
            return
        go = self._store.get(f"{self._round}/verdict") == b"go"
        with self._changed:
            agreed = self._agreed
            go = go and agreed is not None and self._verdicts.get(self._round, True)
            if go and agreed is not None:
                self.hall.permit(agreed)
                self._phase = "going"
            else:
                self.target, self._agreed, self._phase = NEVER, None, "idle"
            self._verdicts[self._round] = go
            self._changed.notify_all()

    def _exists(self, key: str) -> bool:
        return self._store.check([key])


class Chair(Council):
    """Rank 0's seat: it opens the rounds, and speaks the verdict."""

    def __init__(self, hall: Hall, store: JobStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(hall, store, clock=clock)
        self._heard = 0
        self._due: Want | None = None
        self._doing: Want | None = None
        self._not_before = 0
        self._planned_step = 0
        self._since = 0.0
        self._try_at = 0.0
        self._open = False
        self._planned = False
        self._plan_seconds = PLAN_SECONDS
        self._stopping = False

    def tick(self) -> None:
        """Look, answer, and lead."""
        self._hear_wishes()
        if not self._open and self._phase == "idle":
            self._open_round()
        super().tick()
        if self._open and not self._planned:
            self._plan()
        if self._open and self._planned:
            self._judge()
            super().tick()

    def _hear_wishes(self) -> None:
        while self._exists(f"wish/{self._heard + 1}"):
            self._heard += 1
            want = _read_wish(self._store.get(f"wish/{self._heard}"))
            self._due = want if self._due is None else self._due.joined(want)

    def _open_round(self) -> None:
        now = self._clock()
        if self._stopping or self._left or now < self._try_at:
            return
        if self._due is None:
            self._wish_ahead()
        if self._due is None or self.hall.memory(self._due.stop) is not None:
            return
        self._store.set(f"{self._round + 1}/open", "")
        self._open, self._planned, self._since = True, False, now

    def _wish_ahead(self) -> None:
        every = self.hall.every()
        if not every or not self.step:
            return
        due = (max(self.step, self._planned_step) // every + 1) * every
        if self.step + self._steps_in(LEAD_SECONDS) >= due:
            self._due, self._not_before = Want(reason="interval"), due

    def _plan(self) -> None:
        answers = self._answers("at")
        if answers is None:
            return
        steps, prints = zip(*(answer.split(" ", 1) for answer in answers), strict=True)
        if "left" in steps:
            self._close_round("a rank's loop is over")
            return
        assert self._due is not None  # noqa: S101 - a round is opened for one
        self._doing, self._due = self._due, None
        reached = max(int(step) for step in steps)
        step = max(reached + self._steps_in(self._plan_seconds), self._not_before)
        plan = {
            "step": step,
            "reason": self._doing.reason,
            "stop": self._doing.stop,
            "alike": alike([json.loads(each) for each in prints]),
        }
        self._store.set(f"{self._round}/plan", json.dumps(plan))
        self._planned, self._since = True, self._clock()
        super().tick()

    def _judge(self) -> None:
        answers = self._answers("ack")
        if answers is None:
            return
        others = [f"rank {rank} {answer}" for rank, answer in enumerate(answers) if answer != "yes"]
        if others:
            if "late" in answers:
                self._plan_seconds = min(2 * self._plan_seconds, LONGEST_PLAN_SECONDS)
            self._close_round(", ".join(others[:4]))
            return
        agreed = self._agreed
        if agreed is not None:
            self._planned_step, self._stopping = agreed.step, agreed.stop
        self._doing, self._not_before = None, 0
        self._store.set(f"{self._round}/verdict", "go")
        self._open = False

    def _answers(self, word: str) -> list[str] | None:
        """Everyone's; None while some are missing, whose silence ends the round after a while."""
        keys = [f"{self._round}/{word}/{rank}" for rank in range(self.hall.world)]
        if self._store.check(keys):
            return [self._store.get(key).decode() for key in keys]
        if self._clock() - self._since > ANSWER_SECONDS:
            silent = [str(rank) for rank, key in enumerate(keys) if not self._exists(key)]
            named = f"rank {silent[0]}" if len(silent) == 1 else f"ranks {', '.join(silent[:8])}"
            what = "does" if len(silent) == 1 else "do"
            line = f"{named} {what} not answer"
            self.hall.say(f"no save: {line} for {ANSWER_SECONDS:.0f} s; the last checkpoint stands")
            self._close_round(line)
        return None

    def _close_round(self, why: str) -> None:
        self._store.set(f"{self._round}/verdict", why)
        self._open = False
        if self._doing is not None:
            self._due = self._doing if self._due is None else self._doing.joined(self._due)
            self._doing = None
        self._try_at = self._clock() + (0.0 if "late" in why else AGAIN_SECONDS)

    def _steps_in(self, seconds: float) -> int:
        each = self.hall.step_seconds()
        return 1 if each <= 0 else max(1, math.ceil(seconds / each))


def read_plan(raw: bytes, round_: int) -> Agreed:
    """The plan of a round."""
    plan = json.loads(raw)
    return Agreed(
        round=round_,
        step=int(plan["step"]),
        reason=_reason(plan["reason"]),
        stop=bool(plan["stop"]),
        alike=bool(plan["alike"]),
    )


def alike(fingerprints: Sequence[Mapping[str, list[int]]]) -> bool:
    """Whether the ranks that should hold the same do: each of them has said the same of it."""
    return all(
        fingerprints[int(rank)].get(ranks) == sums
        for found in fingerprints
        for ranks, sums in found.items()
        for rank in ranks.split(",")
    )


def _read_wish(raw: bytes) -> Want:
    wish = json.loads(raw)
    return Want(reason=_reason(wish["reason"]), stop=bool(wish["stop"]))


def _reason(text: str) -> Reason:
    return next((reason for reason in REASONS if reason == text), "hand")
