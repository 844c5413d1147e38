"""How a life is brought to its end: notices become plans, plans and signals a stop, which is seen through."""

import signal
import time

from outlive_agent.beginning import Beginning
from outlive_agent.endgame import EndGame
from outlive_agent.events import CalledOff, Noticed, Signalled
from outlive_agent.job import Place
from outlive_agent.record import Record
from outlive_agent.saves import Saves
from outlive_agent.supervise.interface import Supervisor
from outlive_agent.training import Training
from outlive_agent.verdict import Cause

PATIENT_INTERRUPTS = 1
"""How many Ctrl-C still mean: wait for the last save."""


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
        self._interrupts = 0

    def tick(self, now: float) -> None:
        """Do what is due: the stop that was planned, and what makes a trainer stop that does not."""
        changed = self._game.replan(now, self._saves.figures())
        if changed is not None:
            self._record.planned(changed, self._saves.figures(), now=now, deadline=self._game.deadline)
        if self._game.due(now):
            self._last_save()
        action = self._game.escalate(now)
        if action == "terminate":
            self._journal.warning("the training does not stop; sending SIGTERM")
            self._supervisor.terminate(self._training.pid)
        elif action == "kill":
            self._supervisor.kill(self._training.pid)
            if not self._supervisor.owns:
                self._training.hang_up()

    def signalled(self, event: Signalled) -> None:
        """SIGUSR1 asks for a save, any other signal for a stop, and a second Ctrl-C for less patience."""
        if event.number == signal.SIGUSR1:
            self._journal.info("SIGUSR1: saving at the next step")
            self._saves.ask("signal")
            return
        if event.number == signal.SIGINT:
            self._interrupts += 1
        if not self._game.stopping:
            self._journal.notice(f"{signal.Signals(event.number).name}: saving and stopping")
            self._stop("interrupt" if event.number == signal.SIGINT else "signal")
        elif self._interrupts == PATIENT_INTERRUPTS + 1:
            self._journal.warning("interrupted again: not waiting for the training any longer")
            self._game.hurry(time.monotonic())
        elif self._interrupts > PATIENT_INTERRUPTS + 1:
            self._journal.warning("interrupted again: giving up the save under way")
            self._place.closing.set()
            self._saves.give_up()

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
