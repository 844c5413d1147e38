"""The guard of one life: all that happens comes through one queue, and one thread decides what follows."""

import queue
import signal
import time
from collections.abc import Callable
from typing import Any

from outlive.errors import ConfigError, Denied, NoBucket, OutliveError, StoreFull, Superseded
from outlive.store.commit import Committer
from outlive.store.lives import Life
from outlive_agent.beginning import Beginning
from outlive_agent.endgame import EndGame
from outlive_agent.ending import Ending
from outlive_agent.events import (
    BeginFailed,
    CalledOff,
    ChildExited,
    Event,
    Events,
    Faulted,
    LifeClaimed,
    Noticed,
    PacketCame,
    Signalled,
    StateReady,
    SupersededSeen,
    TrainerCame,
    TrainerGone,
    Uploaded,
    UploadFailed,
)
from outlive_agent.exits import Exit
from outlive_agent.job import Job, Place
from outlive_agent.record import Record
from outlive_agent.restarts import Restarts
from outlive_agent.saves import Saves
from outlive_agent.supervise.interface import Supervisor
from outlive_agent.training import Training
from outlive_agent.verdict import Facts, code_text, judge
from outlive_agent.watch import Watch

TICK_SECONDS = 2.0
"""The longest sleep: how old the status may be, and how late a lost event is made up for."""
BUSY_TICK_SECONDS = 1.0
"""The same while bytes move."""
FIRST_STEP_SECONDS = 0.1
"""The same while the first step is awaited, whose time is recorded."""
LAST_WORDS_SECONDS = 5.0
"""How long after the command's end its trainer's last packets may still be on their way."""
SUPERSEDED_GRACE_SECONDS = 5.0


class Guard:
    """Start it with :meth:`run`, in the main thread. Threads that do I/O post to ``events``."""

    def __init__(
        self, job: Job, place: Place, *, supervisor: Supervisor, events: Events, beginning: Beginning
    ) -> None:
        self._job = job
        self._place = place
        self._supervisor = supervisor
        self._events = events
        self._journal = place.journal
        self._beginning = beginning
        self._end = EndGame(job.stop_grace_seconds, job.stop_window_seconds)
        self._saves = Saves(job.every, journal=place.journal, memory=place.memory)
        self._record = Record(job, place, mode=supervisor.mode)
        self._training = Training(
            job, mode=supervisor.mode, saves=self._saves, beginning=beginning, journal=place.journal
        )
        self._ending = Ending(
            place,
            game=self._end,
            saves=self._saves,
            record=self._record,
            training=self._training,
            supervisor=supervisor,
            beginning=beginning,
        )
        self._restarts = Restarts(job.restarts)
        self._watch: Watch | None = None
        self._committer: Committer | None = None
        self._life: Life | None = None
        self._started = False
        self._child: ChildExited | None = None
        self._child_ended_at = 0.0
        self._given_up = False
        self._over = False
        """Nobody trains any more, and nobody will."""
        self._exit: Exit | None = None
        self._reactions = self._all_reactions()

    def run(self) -> Exit:
        """Guard the life to its end."""
        # Not only once the life is ours: the training loads its libraries while the store is asked.
        self._place.notify.ready()
        self._beginning.start()
        try:
            while self._exit is None:
                event = self._next_event()
                if event is not None:
                    self._reactions[type(event)](event)
                self._tick(time.monotonic())
            # Only here: a fault of ours must not end the training too, which saves through a sidecar then.
            self._supervisor.kill(None)
        finally:
            self._close()
        return self._exit

    def _all_reactions(self) -> dict[type, Callable[[Any], object]]:
        return {
            LifeClaimed: self._on_life_claimed,
            StateReady: self._on_state_ready,
            BeginFailed: self._on_begin_failed,
            TrainerCame: self._training.came,
            PacketCame: self._on_packet,
            TrainerGone: self._on_trainer_gone,
            ChildExited: self._on_child_exited,
            Signalled: self._on_signal,
            Noticed: self._ending.noticed,
            CalledOff: self._ending.called_off,
            Uploaded: self._on_uploaded,
            UploadFailed: self._on_upload_failed,
            SupersededSeen: self._on_superseded,
            Faulted: _raise,
        }

    def _next_event(self) -> Event | None:
        now = time.monotonic()
        times = [self._ending.next_at(), self._saves.due_at()]
        tick = (
            TICK_SECONDS if self._record.trained or self._training.connected is None else FIRST_STEP_SECONDS
        )
        wait = min([tick, *(max(0.0, at - now) for at in times if at is not None and at > now)])
        try:
            return self._events.get(timeout=wait)
        except queue.Empty:
            return None

    def _tick(self, now: float) -> None:
        self._place.notify.alive()
        self._record.observe(self._training.talk, self._saves, self._end)
        self._saves.observe()
        if self._exit is not None:
            return
        self._ending.tick(now)
        if not self._end.stopping:
            self._saves.ask_if_due(now, stop_at=self._end.stop_at)
        self._over = self._over or self._nobody_trains(now)
        if self._over:
            self._drain(now)

    # -- the beginning

    def _on_life_claimed(self, event: LifeClaimed) -> None:
        self._life = event.life
        self._record.claimed(event.life)
        self._watch = Watch(self._job, self._place, life=event.life, post=self._events.put)
        if self._supervisor.owns and not self._end.stopping:
            self._start_command(event.life)
        self._training.life_claimed(event.life)

    def _start_command(self, life: Life) -> None:
        try:
            self._supervisor.start({"OUTLIVE_LIFE": str(life.number)})
        except ConfigError as error:
            self._fail(error)
        else:
            self._started = True

    def _on_state_ready(self, event: StateReady) -> None:
        if self._life is None:
            raise RuntimeError("a state came before its life was claimed")
        self._record.restored(event, newest=self._saves.newest)
        if event.held is not None:
            self._saves.measured.restored(event.held.bytes, event.seconds)
        if not self._saves.opened:
            committer = Committer(self._place.store, self._life, parent=event.parent)
            self._committer = committer
            step = None if event.parent is None else event.parent.step
            self._saves.open(committer, resumed=step, post=self._events.put, history=self._record.history)
        else:
            self._saves.fetched_again(event.held)
        self._saves.begin(event.held, left=event.left)
        self._training.state_ready(event)

    def _on_begin_failed(self, event: BeginFailed) -> None:
        if isinstance(event.error, Superseded):
            self._on_superseded(SupersededSeen(error=event.error))
        elif not self._end.stopping or self._saves.undecided:
            self._fail(event.error)

    def _fail(self, error: OutliveError) -> None:
        """Nothing can be guarded: nobody may train."""
        heard = self._training.refuse(error)
        if not heard or self._supervisor.mode != "sidecar":  # that one says it itself, on the same terminal
            self._journal.error(str(error), hint=error.hint)
        self._training.hang_up()
        lasting = isinstance(error, ConfigError | Denied | NoBucket)
        self._exit = Exit.CONFIG if lasting else Exit.FAILED
        self._record.failed(error, self._exit)

    # -- the training

    def _on_packet(self, event: PacketCame) -> None:
        ended = self._training.packet(event)
        if ended is None:
            return
        self._record.trainer_ended(ended)
        if ended.outcome == "stopped" and not self._end.stopping:
            # It was told by somebody else (Slurm, systemd): what is left of it must not hang for ever.
            self._end.ask(None, time.monotonic())

    def _on_trainer_gone(self, event: TrainerGone) -> None:
        talk = self._training.connected
        self._record.observe(talk, self._saves, self._end)
        self._training.gone(event)
        crashed = talk is not None and talk.gone and self._training.outcome in {None, "exception"}
        if crashed and self._supervisor.mode == "daemon" and not self._end.stopping:
            self._record.crashed_under_systemd(self._training.outcome)

    def _on_child_exited(self, event: ChildExited) -> None:
        self._child = event
        self._child_ended_at = time.monotonic()

    def _nobody_trains(self, now: float) -> bool:
        training = self._training
        if self._supervisor.owns:
            if not self._started:
                return self._end.stopping
            if self._child is None:
                return False
            if training.connected is not None and now < self._child_ended_at + LAST_WORDS_SECONDS:
                return False  # its last packets may still be on their way
            return not self._start_again(self._child)
        if training.connected is not None:
            return False
        if self._end.stopping or training.outcome in {"finished", "stopped"}:
            return True
        if self._given_up:
            self._journal.error(
                "the training has ended and is not started again: journalctl -u outlive-train says why",
                hint="put it right; systemctl reset-failed outlive-train; systemctl restart outlive-agent",
            )
            return True
        return training.attached and self._supervisor.mode == "sidecar"

    def _start_again(self, child: ChildExited) -> bool:
        """Whether the command crashed and has been started again."""
        well = child.code in {0, Exit.RESUME} or self._training.outcome in {"finished", "stopped"}
        if well or self._end.stopping or not self._saves.opened or self._life is None:
            return False
        how = code_text(child.code)
        if not self._restarts.again(self._saves.totals.saved_step):
            if self._restarts.limit:
                crashes = f"{self._restarts.crashes} times without a save in between"
                self._journal.error(f"the training crashed {crashes}; the last time with {how}")
            return False
        self._record.crashed(how, number=self._restarts.crashes, of=self._restarts.limit)
        self._child = None
        self._start_command(self._life)
        return True

    # -- the end

    def _on_signal(self, event: Signalled) -> None:
        if event.number == signal.SIGUSR2:
            self._give_up()
        else:
            self._ending.signalled(event)

    def _give_up(self) -> None:
        """systemd starts the training no more (outlive-train.service). Its last words may still come."""
        self._given_up = self._supervisor.mode == "daemon"

    def _on_uploaded(self, event: Uploaded) -> None:
        self._saves.uploaded(event)
        self._record.saved(event)
        ending = self._end.stopping or self._end.plan is not None
        if not ending and self._watch is not None and self._committer is not None:
            self._watch.prune(self._committer)

    def _on_upload_failed(self, event: UploadFailed) -> None:
        training = self._training.connected is not None and not self._end.stopping
        self._saves.failed(event, training=training)
        if isinstance(event.error, StoreFull) and self._watch is not None and self._committer is not None:
            self._watch.make_room(self._committer)

    def _on_superseded(self, event: SupersededSeen) -> None:
        if self._training.superseded:
            return
        self._journal.error(str(event.error), hint=event.error.hint)
        self._record.superseded(event.error)
        self._training.superseded = True
        self._training.refuse(event.error)
        self._saves.give_up()
        self._end.grace_seconds = min(self._end.grace_seconds, SUPERSEDED_GRACE_SECONDS)
        self._end.ask(None, time.monotonic())
        self._supervisor.terminate(self._training.pid)

    def _drain(self, now: float) -> None:
        """Nobody trains any more: see the last state home, then say how it ended."""
        if self._ending.waits(now):
            return
        verdict = judge(
            Facts(
                attached=self._training.attached,
                superseded=self._training.superseded,
                cause=self._end.cause,
                outcome=self._training.outcome,
                child_code=self._child.code if self._child is not None else None,
                reached_step=self._record.reached_step,
                saved_step=self._saves.totals.saved_step or 0,
                given_up=self._given_up,
            )
        )
        self._saves.settle()
        self._record.ended(verdict, self._saves.totals, cause=self._end.cause)
        if verdict.exit is Exit.FINISHED and self._watch is not None:
            self._watch.finished(self._job.run)
        self._exit = verdict.exit

    def _close(self) -> None:
        given_up = self._ending.given_up
        if given_up:
            self._journal.silence()  # what fails from here on is of no consequence
            self._ending.cut()
        self._beginning.close()
        self._training.hang_up()
        self._saves.close()
        self._record.close(patient=not given_up, seconds=self._ending.left(time.monotonic()))
        self._place.closing.set()  # what is left to do is not worth waiting for
        if self._watch is not None:
            left = 0.0 if given_up else self._ending.left(time.monotonic())
            self._watch.close(saved=self._exit in {Exit.RESUME, Exit.FINISHED}, seconds=left)
        if given_up:
            self._ending.cut()
        self._place.lock.release()


def _raise(event: Faulted) -> None:
    """An agent that lost a part of itself must not pretend to guard: its trainer finds another one."""
    raise RuntimeError(f"the agent's thread {event.thread} has a fault") from event.error
