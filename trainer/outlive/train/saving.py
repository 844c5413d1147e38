"""One way to save, whatever the reason: capture, plan, copy, hand over. Also: what if the agent is gone."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from outlive.errors import OutliveError, StateError
from outlive.staging.messages import Committed, Ended, Failed, Outcome, Refused
from outlive.train.arenas import Memory
from outlive.train.boundary import Stand, Want
from outlive.train.hiding import Hiding, Way
from outlive.train.layout import Layout
from outlive.train.link import Link, RefusedError
from outlive.train.parts import uncollected
from outlive.train.shortage import shortage
from outlive.train.sidecar import let_go, succeed_agent
from outlive.train.snapshot import Plan, plan
from outlive.train.taking import Taking

ACCEPT_SECONDS = 30.0
PATIENCE_SECONDS = 3600.0
_REMIND_SECONDS = 10.0
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 10.0
_RECONNECT_SECONDS = 1.0
"""Between two looks for a daemon that systemd restarts, which cost nothing."""
_SIDECAR_SECONDS = 10.0


def say(line: str) -> None:
    """One line to the user. On stderr: stdout may be data."""
    print(f"outlive: {line}", file=sys.stderr, flush=True)


class Saving:
    """Takes snapshots of one run and hands them to whichever agent it has."""

    def __init__(
        self,
        link: Link,
        *,
        capture: Callable[[], Mapping[str, Any]],
        arenas: Memory,
        succeed: Callable[..., Link] = succeed_agent,
        hide: bool = True,
    ) -> None:
        self.link = link
        self.step: int | None = None
        """The step of the newest snapshot that the agent has, or that this life resumed from."""
        self.stall_ns = 0
        """What the newest snapshot has cost the training."""
        self.again: Want | None = None
        """A save whose snapshot turned out to be of no use, to be taken at the next boundary."""
        self._capture = capture
        self._arenas = arenas
        self._succeed = succeed
        self._hiding = Hiding(say, wanted=hide)
        self._taking: Taking | None = None
        self._landing = threading.RLock()
        # Disabled for the compiler, which would else make what it sees at compile time part of the step.
        hook = torch.compiler.disable(self._before_optimizer_step)  # type: ignore[no-untyped-call]
        self._hook = register_optimizer_step_pre_hook(hook)
        self._layout: Layout | None = None
        self._before: int | None = None
        self._retry_at = 0.0

    @property
    def any(self) -> bool:
        """Whether a next life would find anything to resume from, as far as this one knows."""
        return bool(self.step)

    def check(self) -> None:
        """``StateError`` now rather than at the first save, if the state cannot be kept."""
        self._layout = self._plan().layout
        try:
            self._arenas.prepare(self._layout)
        except EOFError:
            self.link.lost = True
        except (OSError, MemoryError):  # the first save tries again, and says so
            pass

    def save(self, want: Want, stand: Stand) -> bool:
        """Take the snapshot, if there is anything new to save. False if it has to wait.

        ``StateError`` if it can't be taken, be it for want of memory: then the next one is tried anew.
        """
        began = time.monotonic_ns()
        self.land()
        self.retract()
        if stand.step == self.step:
            self.honour(want)
            return True
        arena = None if self.link.lost else self._arenas.free(stop=want.stop)
        if arena is None:
            return False
        size = None
        try:
            snapshot = self._plan()
            self._layout, size = snapshot.layout, snapshot.layout.size
            if not self._arenas.fits(snapshot.layout, arena):
                self._arenas.give_up()
                self.again = want
                return False
            self._begin(snapshot, want, stand, arena=arena, began=began)
        except EOFError:
            self.link.lost = True
        except (OSError, MemoryError) as why:
            self._arenas.give_up()
            raise shortage(why, size=size) from None
        except StateError:
            self._arenas.give_up()
            raise
        return self.step == stand.step

    def retract(self) -> None:
        """A snapshot of which nothing became is as if it had never been taken."""
        if isinstance(self.link.results.get(self._arenas.number), Failed):
            self.step = self._before

    def honour(self, want: Want) -> None:
        """Nothing more comes of this request."""
        if want.serial:
            self.link.page.honoured = want.serial

    def land(self, *, wait: bool = True) -> None:
        """Give the agent the snapshot that is being copied, if there is one. Any thread may."""
        taking = self._taking
        if taking is not None:  # else the last one is over: that is said when it is handed over, not before
            self._land(taking, wait=wait)

    def wait_free(self) -> bool:
        """Until the arena is ours, for a last snapshot that has the time."""
        self.land()
        arenas = self._arenas
        self._wait("the upload before the last one", lambda: arenas.last_free() is not None or arenas.parted)
        return arenas.last_free() is not None

    def permitted(self, *, stop: bool, seconds: float) -> bool:
        """Wait until an arena is ours, for a save that all ranks take now."""
        self.land()
        return self.link.wait(lambda: self._arenas.free(stop=stop) is not None, seconds=seconds)

    def secure(self, *, urgent: bool) -> bool:
        """Wait until the newest snapshot no longer needs this process; False if that can't be had.

        An agent that is not ours goes on alone, so what is `urgent` waits for no upload there. A sidecar may
        be killed with the process that started it, as in a container, so its upload is waited for.
        """
        self.land()
        link, number = self.link, self._arenas.number
        if number == 0:
            return True
        if urgent and link.welcome.mode != "sidecar":
            return link.wait(lambda: link.accepted >= number, seconds=ACCEPT_SECONDS)
        if not self._wait("the last checkpoint to be stored", lambda: number in link.results):
            return False
        return isinstance(link.results[number], Committed)

    def failure(self) -> str:
        """Why the newest snapshot did not become a checkpoint."""
        result = self.link.results.get(self._arenas.number)
        return result.message if isinstance(result, Failed) else "the agent did not say so in time"

    def succeed(self, *, at_once: bool) -> bool:
        """Find another agent for this life. Every few seconds at most, unless it has to be `at_once`.

        A snapshot that died with the old one is as if it had never been taken.
        """
        if not at_once and time.monotonic() < self._retry_at:
            return False
        self.land()
        daemon = self.link.welcome.mode == "daemon"
        self._retry_at = time.monotonic() + (_RECONNECT_SECONDS if daemon else _RETRY_SECONDS)
        try:
            link = self._succeed(self.link.welcome, at_once=at_once, say=say)
            self._arenas.move_to(link)
        except RefusedError as why:
            self.link.refused = Refused(message=str(why), hint=why.hint)
            return False
        except (EOFError, OSError, OutliveError) as why:
            if at_once:
                say(f"no other agent could be had: {why}")
            return False
        if not isinstance(self.link.results.get(self._arenas.number), Committed):
            self.step = self._before
        self._hang_up(self.link)
        self.link = link
        return True

    def end(self, outcome: Outcome, *, step: int, message: str) -> None:
        """The last packet; then let go of everything."""
        self.land()
        self._hook.remove()
        self.link.end(Ended(outcome=outcome, step=step, message=message))
        self._arenas.close()
        self._hang_up(self.link)

    def _plan(self) -> Plan:
        with uncollected():
            return plan(self._capture(), self._layout)

    def _begin(self, plan: Plan, want: Want, stand: Stand, *, arena: int, began: int) -> None:
        room = self._arenas.begin(plan.layout, arena)
        ways = self._hiding.ways(plan, arena=arena, stop=want.stop or want.reason == "finished")
        taking = Taking(plan, room, want=want, stand=stand, ways=ways, began=began)
        taking.versions = self._hiding.versions(plan)
        self._before, self.step = self.step, stand.step
        if set(ways) <= {Way.AT_ONCE}:
            self._hand_over(taking)
        else:
            self._taking = taking
            taking.begin(when_late=partial(self._land, taking))

    def _land(self, taking: Taking, *, wait: bool = True) -> None:
        """End this one, unless another thread has. Who comes meanwhile waits: until then the image is read
        and the tensors' counts are compared, so that neither a step nor another snapshot may begin.
        """
        if taking.elsewhere:  # before the lock, which a fork may have caught in another thread's hands
            return
        with self._landing:
            if self._taking is not taking or not (wait or taking.copied):
                return
            used = False
            try:
                taking.finish()
                if taking.verdict(self._hiding):
                    self._hand_over(taking)
                    used = True
                else:
                    self._hiding.again()
            except (
                OSError,
                MemoryError,
            ):  # no room for the notes: the next boundary tries again, and says so
                pass
            finally:
                if not used:
                    self._arenas.give_up()
                    self.step, self.again = self._before, taking.want
                self._taking = None

    def _hand_over(self, taking: Taking) -> None:
        self._hiding.taken(taking.plan, taking.moves, arena=taking.room.arena, versions=taking.versions)
        page = self.link.page
        self.stall_ns = taking.stall_ns
        page.copy_ns, page.stall_ns = taking.copy_ns, taking.stall_ns
        try:
            self._arenas.hand_over(taking.packet(), values=taking.plan.values, table=taking.plan.layout.table)
        except EOFError:
            self.link.lost = True
            self.step = self._before
        except (OSError, MemoryError):
            self.step = self._before
            raise
        else:
            self.honour(taking.want)

    def _before_optimizer_step(self, *_: Any) -> None:
        self._hiding.before_step()
        self.land()

    def _hang_up(self, link: Link) -> None:
        link.close()
        let_go(link.sidecar, seconds=_SIDECAR_SECONDS)

    def _wait(self, what: str, done: Callable[[], bool]) -> bool:
        began = said = time.monotonic()
        while not self.link.wait(done, seconds=_POLL_SECONDS):
            now = time.monotonic()
            if self.link.lost or self.link.refused is not None or now - began > PATIENCE_SECONDS:
                return False
            if now - said > _REMIND_SECONDS:
                say(f"waiting for {what} ({now - began:.0f} s so far)")
                said = now
        return True
