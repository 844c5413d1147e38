"""How a life is brought to its end: notices become plans, plans and signals a stop, which is seen through."""

import math
import signal
import time

from outlive.objects.retry import Cuttable
from outlive_agent.beginning import Beginning
from outlive_agent.bursts import Bursts
from outlive_agent.drain import HURRIED_SECONDS, Drain
from outlive_agent.endgame import EndGame
from outlive_agent.events import CalledOff, Noticed, Signalled
from outlive_agent.job import Place
from outlive_agent.journal import step_text
from outlive_agent.record import Record
from outlive_agent.saves import Saves
from outlive_agent.supervise.interface import Supervisor
from outlive_agent.training import Training
from outlive_agent.units import duration_text
from outlive_agent.verdict import Cause

EXTEND_EVERY_SECONDS = 2.0
LAST_SECONDS = 0.5
"""Kept of a deadline for the exit itself."""


class Ending:
    """Only the deciding thread uses it. ``game`` is the arithmetic, this is what is done about it."""

    def __init__(
        self,
        place: Place,
        *,
        game: EndGame,
        saves: Saves,
        record: Record,
        training: Training,
        supervisor: Supervisor,
        beginning: Beginning,
    ) -> None:
        self._place = place
        self._journal = place.journal
        self._game = game
        self._saves = saves
        self._record = record
        self._training = training
        self._supervisor = supervisor
        self._beginning = beginning
        self._drain = Drain()
        self._draining = self._told = self._hurried = self._gave_up = False
        self._signals = 0
        self._bursts = Bursts()
        self._next_extend = 0.0

    def tick(self, now: float) -> None:
        """Do what is due: the stop that was planned, and what makes a trainer stop that does not."""
        progress = self._saves.progress
        done = 0 if progress is None else progress[1].done
        self._drain.observe((self._saves.totals.checkpoints, done) if done else None, now)
        self._extend(now)
        figures = self._saves.figures()
        changed = self._game.replan(now, figures)
        if changed is not None:
            self._record.planned(changed, figures, now=now, deadline=self._game.deadline)
        if self._game.due(now):
            self._last_save()
        action = self._game.escalate(now) if self._trains else None
        if action == "terminate":
            self._journal.warning("the training does not stop; sending SIGTERM")
            self._supervisor.terminate(self._training.pid)
        elif action == "kill":
            self._supervisor.kill(self._training.pid)
            if not self._supervisor.owns:
                self._training.hang_up()

    def next_at(self) -> float | None:
        """When something is due next."""
        if not self._draining:
            return self._game.next_at()
        return self._drain.until(self._game.deadline, hard=self._game.hard)

    def waits(self, now: float) -> bool:
        """Nobody trains any more. Whether the last save is still waited for."""
        self._place.lock.hold()
        if not self._draining:
            self._draining = True
            self._drain.begin(now)
        if not self._saves.rescue(now):
            return False
        self._record.draining(self._saves)
        why = self._drain.why(now, self._game.deadline, hard=self._game.hard)
        if not why and not self._told and self._drain.quiet(now):
            self._told = True
            left = self._drain.until(self._game.deadline, hard=self._game.hard) - now
            self._journal.warning(f"nothing reaches the store; giving up in {duration_text(left)}")
        if why:
            self._give_up(why)
        return not why

    def left(self, now: float) -> float:
        """Seconds until whoever takes the machine away does so, as far as that is known."""
        return math.inf if self._game.deadline is None else self._game.deadline - now - LAST_SECONDS

    @property
    def given_up(self) -> bool:
        """Whether a save was given up, so that nothing is worth waiting for."""
        return self._gave_up

    def signalled(self, event: Signalled) -> None:
        """SIGUSR1 asks for a save, any other signal for a stop, and each further one for less patience."""
        name, now = signal.Signals(event.number).name, time.monotonic()
        if event.number == signal.SIGUSR1:
            self._journal.info("SIGUSR1: saving at the next step")
            self._saves.ask("signal")
            return
        if self._bursts.echo(event.number, now):
            return
        interrupt = event.number == signal.SIGINT
        self._signals += 1
        again = "interrupted again" if interrupt else f"{name} again"
        if self._signals == 1:
            self._first_signal(name, now, interrupt=interrupt)
        elif self._trains and not self._hurried:
            self._hurried = True
            self._journal.warning(f"{again}: not waiting for the training any longer")
            self._game.hurry(now, at_once=interrupt)
        elif interrupt or not self._drain.hurry(now):
            self._give_up(again)
        else:
            self._journal.warning(f"{again}: the save under way gets {duration_text(HURRIED_SECONDS)} more")

    def _first_signal(self, name: str, now: float, *, interrupt: bool) -> None:
        figures = self._saves.figures()
        need = None if interrupt else self._game.signalled(now, figures)
        if self._game.stopping:
            return
        text = f"{name}: saving and stopping"
        if need is not None and self._game.deadline is not None:
            left = self._game.deadline - now
            busy = figures.in_flight_seconds
            text = f"{text}, {duration_text(left)} left, {need.text}"
            if busy is not None and need.safe <= left < busy + need.safe:
                self._saves.drop_current()
        self._journal.notice(text)
        if not interrupt:
            self._record.told_to_stop(name, self._game.deadline)
        self._stop("interrupt" if interrupt else "signal", deadline=self._game.deadline)

    def _give_up(self, why: str) -> None:
        self._gave_up = True
        newest = self._saves.newest
        what = "the save under way" if newest is None else f"the save of {step_text(newest.step)}"
        self._journal.warning(f"giving up {what}: {why}")
        self._place.closing.set()
        self._saves.give_up()

    def cut(self) -> None:
        """End the requests under way: one that gets no answer would keep the process alive."""
        if isinstance(self._place.store, Cuttable):
            self._place.store.cut()

    @property
    def _trains(self) -> bool:
        """Whether there is anybody whose stop is waited for."""
        return self._supervisor.running or self._training.connected is not None

    def _extend(self, now: float) -> None:
        """Ask systemd for more time: while the trainer may still take its time, and while an upload moves."""
        game = self._game
        if game.asked_at is None or now < self._next_extend:
            return
        if now < game.asked_at + game.grace_seconds or not self._drain.stalled(now):
            self._next_extend = now + EXTEND_EVERY_SECONDS
            self._place.notify.extend()

    def noticed(self, event: Noticed) -> None:
        """Somebody announced a reclaim: plan what is left of the time."""
        notice = event.notice
        now = time.monotonic()
        if self._game.stopping or not self._record.noticed(notice, now=now):
            return
        if notice.kind == "hint":
            self._saves.ask("notice")
            return
        plan = self._game.noticed(notice.id, deadline=notice.deadline, now=now, figures=self._saves.figures())
        if plan.save_now:
            self._saves.ask("notice")
        self._record.planned(
            plan, self._saves.figures(), now=now, deadline=self._game.deadline, notice=notice
        )

    def called_off(self, event: CalledOff) -> None:
        """A notice no longer stands; others may, and then :meth:`tick` plans for them."""
        self._record.called_off(event.withdrawn, late=self._game.stopping)
        self._game.call_off(event.withdrawn.id)

    def _last_save(self) -> None:
        """The time that was planned for it has come."""
        plan = self._game.plan
        if plan is not None and plan.drop_in_flight:
            self._saves.drop_current()
        self._stop("notice", deadline=self._game.deadline)

    def _stop(self, cause: Cause, *, deadline: float | None = None) -> None:
        """Ask the trainer for its last snapshot, or stop a command that has nothing to save yet."""
        self._game.ask(cause, time.monotonic())
        self._training.stopping = True
        self._place.notify.stopping()
        talk = self._training.connected
        if talk is None or not talk.ready:
            if not self._saves.undecided:
                self._beginning.close()
            if not self._saves.opened and not self._saves.undecided:
                self._place.closing.set()  # nothing is there to be saved, so nothing is worth waiting for
            self._supervisor.terminate(self._training.pid)
            return
        self._saves.ask("notice" if cause == "notice" else "signal", stop=True, deadline=deadline)
        if not talk.page.boundary_ns:
            # It may be long until its first boundary, and nothing is lost.
            self._supervisor.terminate(talk.pid)
