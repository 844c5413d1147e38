"""The guard of one life: all that happens comes through one queue, and one thread decides what follows."""

import queue
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from outlive.errors import ConfigError, Denied, NoBucket, OutliveError, ProtocolError, Superseded
from outlive.staging.messages import ArenaOffer, Ended, Failed, Message, Refused, SnapshotTaken
from outlive.store.commit import Committer
from outlive.store.lives import Life
from outlive_agent import planner
from outlive_agent.beginning import Beginning
from outlive_agent.conversation import SEND_SECONDS, Conversation, close_all
from outlive_agent.endgame import EndGame
from outlive_agent.events import (
    BeginFailed,
    ChildExited,
    Event,
    Events,
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
from outlive_agent.saves import Saves
from outlive_agent.supervise.interface import Supervisor
from outlive_agent.trainers import check_hello
from outlive_agent.verdict import Cause, Facts, code_text, judge
from outlive_agent.watch import Watch

TICK_SECONDS = 1.0
"""The longest sleep: how old the status may be, and how late a lost event is made up for."""
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
        self._end = EndGame(job.stop_grace_seconds)
        self._saves = Saves(job.every, journal=place.journal)
        self._record = Record(job, place, mode=supervisor.mode)
        self._watch: Watch | None = None
        self._life: Life | None = None
        self._state: StateReady | None = None
        self._talk: Conversation | None = None
        self._early: list[TrainerCame] = []
        self._attached = False
        self._superseded = False
        self._child_code: int | None = None
        self._child_ended_at: float | None = None
        self._crashes = 0
        self._saved_at_crash: int | None = None
        self._exit: Exit | None = None
        self._reactions: dict[type, Callable[[Any], None]] = {
            LifeClaimed: self._on_life_claimed,
            StateReady: self._on_state_ready,
            BeginFailed: self._on_begin_failed,
            TrainerCame: self._on_trainer_came,
            PacketCame: self._on_packet,
            TrainerGone: self._on_trainer_gone,
            ChildExited: self._on_child_exited,
            Signalled: self._on_signal,
            Noticed: self._on_notice,
            Uploaded: self._on_uploaded,
            UploadFailed: self._on_upload_failed,
            SupersededSeen: self._on_superseded,
        }

    def run(self) -> Exit:
        """Guard the life to its end."""
        self._beginning.start()
        try:
            while self._exit is None:
                event = self._next_event()
                if event is not None:
                    self._reactions[type(event)](event)
                self._tick(time.monotonic())
        finally:
            self._close()
        return self._exit

    def _next_event(self) -> Event | None:
        now = time.monotonic()
        times = [self._end.next_at(), self._saves.due_at()]
        wait = min([TICK_SECONDS, *(max(0.0, at - now) for at in times if at is not None and at > now)])
        try:
            return self._events.get(timeout=wait)
        except queue.Empty:
            return None

    def _tick(self, now: float) -> None:
        self._place.notify.alive()
        self._record.observe(self._talk, self._saves, self._end)
        if self._exit is not None:
            return
        if self._end.due(now):
            self._stop("notice", deadline=self._end.deadline)
        action = self._end.escalate(now)
        trainer = self._talk.pid if self._talk is not None and not self._talk.gone else None
        if action == "terminate":
            self._journal.warning("the training does not stop; sending SIGTERM")
            self._supervisor.terminate(trainer)
        elif action == "kill":
            self._supervisor.kill(trainer)
            if not self._supervisor.owns and self._talk is not None:
                self._hang_up(self._talk)
        if not self._end.stopping and not self._superseded:
            self._saves.ask_if_due(now)
        if self._over(now):
            self._drain()

    # -- the beginning

    def _on_life_claimed(self, event: LifeClaimed) -> None:
        self._life = event.life
        self._record.claimed(event.life)
        self._watch = Watch(self._job, self._place, life=event.life, post=self._events.put)
        if self._end.stopping:
            self._exit = Exit.RESUME
            return
        if self._supervisor.owns:
            self._start_command()
        for came in self._early:
            self._on_trainer_came(came)
        self._early.clear()

    def _start_command(self) -> None:
        assert self._life is not None  # noqa: S101 - the callers' duty
        try:
            self._supervisor.start({**self._job.child_environ, "OUTLIVE_LIFE": str(self._life.number)})
        except ConfigError as error:
            self._fail(error)

    def _on_state_ready(self, event: StateReady) -> None:
        assert self._life is not None  # noqa: S101 - claimed first
        first = self._state is None
        self._state = event
        self._record.restored(event, again=not first)
        if first:
            committer = Committer(self._place.store, self._life, parent=event.parent)
            step = None if event.parent is None else event.parent.step
            self._saves.open(committer, resumed=step, post=self._events.put, history=self._record.history)
        else:
            self._saves.fetched_again(event.held)
        self._saves.newest = event.held
        if self._talk is not None and not self._talk.ready:
            self._give_state(self._talk)

    def _on_begin_failed(self, event: BeginFailed) -> None:
        if isinstance(event.error, Superseded):
            self._on_superseded(SupersededSeen(error=event.error))
        else:
            self._fail(event.error)

    def _fail(self, error: OutliveError) -> None:
        """Nothing can be guarded: nobody may train."""
        self._journal.error(str(error), hint=error.hint)
        for came in self._early:
            _refuse(came, error)
        if self._talk is not None:
            self._talk.refuse(str(error), hint=error.hint)
            self._hang_up(self._talk)
        self._supervisor.kill(None)
        lasting = isinstance(error, ConfigError | Denied | NoBucket)
        self._exit = Exit.CONFIG if lasting else Exit.FAILED
        self._record.failed(error, self._exit)

    # -- the trainer

    def _on_trainer_came(self, event: TrainerCame) -> None:
        if self._life is None:
            self._early.append(event)
            return
        busy = self._talk is not None and not self._talk.gone
        try:
            check_hello(event.hello, life=self._life, busy=busy, taken_over=self._job.taken_over is not None)
            if self._superseded or self._end.stopping:
                raise ProtocolError("the run is being stopped on this machine")
        except ProtocolError as error:
            self._journal.problem("a training was refused", error)
            _refuse(event, error)
            return
        talk = self._talk = Conversation(event.channel, event.hello, life=self._life.number)
        self._attached = True
        try:
            talk.welcome(
                run=self._job.run,
                nonce=self._life.nonce,
                mode=self._supervisor.mode,
                store=self._job.location,
            )
        except (EOFError, TimeoutError):
            self._hang_up(talk)
            return
        if self._state is not None:
            self._give_state(talk)

    def _give_state(self, talk: Conversation) -> None:
        """What the trainer resumes from; one that already lives keeps what it has."""
        assert self._state is not None  # noqa: S101 - the callers' duty
        held = self._saves.memory
        if self._saves.newest is not None and held is None and not talk.hello.life:
            # The trainer before this one died while it copied over the only state in memory.
            self._saves.newest = None
            self._beginning.fetch_again()
            return
        try:
            if talk.hello.life:
                talk.ready = True
                lent = None
            else:
                uploading = held is not None and self._saves.pending(held)
                lent = talk.give(held, seconds=self._state.seconds, uploading=uploading)
        except (EOFError, TimeoutError):
            self._hang_up(talk)
            return
        self._saves.trainer_started(talk, lent)

    def _on_packet(self, event: PacketCame) -> None:
        talk = self._talk
        message, fds = event.received
        if talk is None or event.channel is not talk.channel or talk.gone:
            close_all(fds)
            return
        try:
            if isinstance(message, ArenaOffer):
                talk.offered(message, fds)
            elif isinstance(message, SnapshotTaken) and talk.ready:
                self._on_snapshot(talk, message, fds)
            else:
                close_all(fds)
                self._on_last_packet(talk, message)
        except ProtocolError as error:
            self._journal.problem("the training's connection is closed", error)
            talk.refuse(str(error), hint=error.hint)
            self._hang_up(talk)

    def _on_snapshot(self, talk: Conversation, packet: SnapshotTaken, fds: tuple[int, ...]) -> None:
        held = talk.taken(packet, fds)
        if self._superseded:
            talk.done_with(held)
            talk.tell(Failed(number=packet.number, message="a newer life of this run exists"))
        else:
            self._saves.accept(held)

    def _on_last_packet(self, talk: Conversation, message: Message) -> None:
        if not isinstance(message, Ended):
            raise ProtocolError(f"a {message.packet} packet came where none can be")
        talk.ended = message
        self._record.trainer_ended(message)
        if message.outcome == "stopped" and not self._end.stopping:
            # It was told by somebody else (Slurm, systemd): what is left of it must not hang for ever.
            self._end.ask(None, time.monotonic())

    def _on_trainer_gone(self, event: TrainerGone) -> None:
        talk = self._talk
        if talk is None or event.channel is not talk.channel:
            event.channel.close()
            if event.error is not None:
                self._journal.problem("a connection was refused", event.error)
            return
        if event.error is not None:
            self._journal.problem("the training's connection is closed", event.error)
        if not talk.gone:
            self._hang_up(talk)

    def _hang_up(self, talk: Conversation) -> None:
        talk.close()
        self._record.observe(talk, self._saves, self._end)
        if talk is self._saves.talk:
            self._saves.trainer_gone()

    def _on_child_exited(self, event: ChildExited) -> None:
        self._child_code = event.code
        self._child_ended_at = time.monotonic()

    def _over(self, now: float) -> bool:
        """Whether nobody trains any more, and nobody will."""
        talk = self._talk
        connected = talk is not None and not talk.gone
        if self._life is None:
            return self._end.stopping
        if self._supervisor.owns:
            if self._child_ended_at is None:
                return False
            if connected and now < self._child_ended_at + LAST_WORDS_SECONDS:
                return False  # its last packets may still be on their way
            return not self._restart()
        if connected:
            return False
        if self._end.stopping or self._superseded:
            return True
        if talk is None:
            return False
        ended = talk.ended is not None and talk.ended.outcome != "exception"
        return ended or self._supervisor.mode == "helper"

    def _restart(self) -> bool:
        """Whether the command crashed and has been started again."""
        crashed = (
            self._attached and self._child_code not in {0, Exit.RESUME, None} and self._state is not None
        )
        outcome = (
            self._talk.ended.outcome if self._talk is not None and self._talk.ended is not None else None
        )
        if not crashed or self._end.stopping or self._superseded or outcome in {"finished", "stopped"}:
            return False
        if self._saves.totals.saved_step != self._saved_at_crash:
            self._crashes = 0  # it got somewhere
        self._saved_at_crash = self._saves.totals.saved_step
        self._crashes += 1
        how = code_text(self._child_code)
        if self._crashes > self._job.restarts:
            if self._job.restarts:
                self._journal.error(
                    f"the training crashed {self._crashes} times without a save in between ({how})"
                )
            return False
        self._record.crashed(how, number=self._crashes, of=self._job.restarts)
        self._child_code = self._child_ended_at = None
        self._start_command()
        return True

    # -- the end

    def _on_signal(self, event: Signalled) -> None:
        if event.number == signal.SIGUSR1:
            self._journal.info("SIGUSR1: saving at the next step")
            self._saves.ask("signal")
        elif event.number == signal.SIGINT and self._end.cause == "interrupt":
            self._journal.warning("interrupted again: not waiting for the training any longer")
            self._end.hurry(time.monotonic())
        elif not self._end.stopping:
            self._journal.notice(f"{signal.Signals(event.number).name}: saving and stopping")
            self._stop("interrupt" if event.number == signal.SIGINT else "signal")

    def _stop(self, cause: Cause, *, deadline: float | None = None) -> None:
        """Ask the trainer for its last snapshot, or stop a command that has nothing to save yet."""
        if self._end.stopping:
            return
        self._end.ask(cause, time.monotonic())
        self._place.notify.stopping()
        talk = self._talk
        if talk is None or talk.gone or not talk.ready:
            self._beginning.close()
            self._supervisor.terminate(None)
            return
        self._saves.ask("notice" if cause == "notice" else "signal", stop=True, deadline=deadline)
        if not talk.page.boundary_ns:
            self._supervisor.terminate(
                talk.pid
            )  # it may be long until its first boundary, and nothing is lost

    def _on_notice(self, event: Noticed) -> None:
        notice = event.notice
        now = time.monotonic()
        if self._end.stopping or not self._record.noticed(notice, now=now):
            return
        if notice.kind == "hint":
            self._saves.ask("notice")
            return
        plan = planner.plan(now, now if notice.deadline is None else notice.deadline, self._saves.figures())
        self._record.planned(plan, notice)
        if plan.drop_in_flight:
            self._saves.drop_current()
        if notice.deadline is not None:
            self._end.plan(deadline=notice.deadline, stop_at=plan.stop_at)
        if notice.deadline is None or plan.stop_at <= now:
            self._stop("notice", deadline=notice.deadline)
        elif plan.save_now:
            self._saves.ask("notice")

    def _on_uploaded(self, event: Uploaded) -> None:
        self._saves.uploaded(event)
        self._record.saved(event)
        now = time.monotonic()
        if self._end.stop_at is not None and self._end.deadline is not None:
            self._end.replan(planner.plan(now, self._end.deadline, self._saves.figures()).stop_at)
        elif self._watch is not None and not self._end.stopping:
            self._watch.prune(event.committed.manifest)

    def _on_upload_failed(self, event: UploadFailed) -> None:
        training = self._talk is not None and not self._talk.gone and not self._end.stopping
        self._saves.failed(event, training=training)

    def _on_superseded(self, event: SupersededSeen) -> None:
        if self._superseded:
            return
        self._superseded = True
        self._journal.error(str(event.error), hint=event.error.hint)
        self._record.superseded(event.error)
        self._saves.drop_current()
        self._end.grace_seconds = min(self._end.grace_seconds, SUPERSEDED_GRACE_SECONDS)
        self._end.ask(None, time.monotonic())
        if self._talk is not None and not self._talk.gone:
            self._talk.refuse(str(event.error), hint=event.error.hint)
        self._supervisor.terminate(self._talk.pid if self._talk is not None and not self._talk.gone else None)

    def _drain(self) -> None:
        """Nobody trains any more: see the last state home, then say how it ended."""
        self._place.lock.hold()
        if not self._superseded and self._saves.rescue(time.monotonic()):
            self._record.draining(self._saves)
            return
        talk = self._talk
        verdict = judge(
            Facts(
                attached=self._attached,
                superseded=self._superseded,
                cause=self._end.cause,
                outcome=talk.ended.outcome if talk is not None and talk.ended is not None else None,
                child_code=self._child_code,
                reached_step=self._record.reached_step,
                saved_step=self._saves.totals.saved_step or 0,
            )
        )
        self._record.ended(verdict, self._saves.totals)
        self._exit = verdict.exit

    def _close(self) -> None:
        self._beginning.close()
        self._supervisor.kill(None)
        if self._talk is not None and not self._talk.gone:
            self._talk.close()
        self._saves.close()
        if self._watch is not None:
            self._watch.close()
        self._record.close()
        self._place.lock.release()


def _refuse(came: TrainerCame, error: OutliveError) -> None:
    with suppress(EOFError, TimeoutError):
        came.channel.send(Refused(message=str(error), hint=error.hint), timeout=SEND_SECONDS)
    came.channel.close()
