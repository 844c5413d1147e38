"""What the guard tells the world about a life: journal, history in the store, status file, systemd."""

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from outlive.errors import OutliveError
from outlive.staging.messages import Ended, Mode, Outcome
from outlive.store.lives import Life
from outlive_agent import status
from outlive_agent.conversation import Conversation
from outlive_agent.endgame import EndGame
from outlive_agent.events import StateReady, Uploaded
from outlive_agent.exits import Exit
from outlive_agent.heartbeat import Heartbeat
from outlive_agent.held import Held
from outlive_agent.history import History
from outlive_agent.hooks import Hooks
from outlive_agent.job import Job, Place
from outlive_agent.journal import step_text
from outlive_agent.measured import Figures
from outlive_agent.notice import Notice, Withdrawn
from outlive_agent.planner import Plan
from outlive_agent.saves import Saves, Totals
from outlive_agent.units import bytes_text, duration_text, iso_text
from outlive_agent.verdict import Cause, Verdict

LAST_WRITES_SECONDS = 20.0
"""How long the end waits for the history to be written."""
HASTY_WRITES_SECONDS = 0.5
"""The same where a save was given up already."""
EARLIER_SECONDS = 0.5
"""One deadline may be told in several ways that differ by less."""
LEAST_HOOK_SECONDS = 1.0
"""What the hooks get of an end that has no time left."""
STATUS_SECONDS = 2.0


class Record:
    """Only the deciding thread uses it; it never raises and never waits for the store."""

    def __init__(self, job: Job, place: Place, *, mode: Mode) -> None:
        self._job = job
        self._place = place
        self._journal = place.journal
        self._mode = mode
        about = {"OUTLIVE_RUN": job.run, "OUTLIVE_STORE": job.location, "OUTLIVE_LIFE": ""}
        self._hooks = Hooks(job.hooks, os.environ, about=about, journal=place.journal)
        self._began = time.monotonic()
        self._started_at = iso_text(datetime.now(timezone.utc))
        self._life: Life | None = None
        self._history: History | None = None
        self._phase = "starting"
        self._notice: Notice | None = None
        self._seen: set[str] = set()
        self._deadline: float | None = None
        self._saved_at: str | None = None
        self._resumed_from: tuple[int, int] | None = None
        self._next_status = 0.0
        self._heartbeat = Heartbeat()
        self._trainer: int | None = None
        self._why = ""
        self.reached_step = 0
        self.trained = False
        """Whether the first boundary was passed."""

    @property
    def history(self) -> History:
        """The history of the life that was claimed."""
        if self._history is None:
            raise RuntimeError("no life is claimed yet")
        return self._history

    def claimed(self, life: Life) -> None:
        """The life is ours."""
        self._life = life
        self._journal.about(run=life.run, life=life.number)
        self._hooks.tell(life=str(life.number))
        self._history = History(self._place.store, life, journal=self._journal)
        if self._place.kept is not None:
            self._place.kept.keep(life)
        if self._place.memory is not None:
            self._place.memory.belongs_to(life)
        if self._job.taken_over is None:
            self._journal.notice(f"life {life.number} of {life.run} begins, in {self._job.location}")
            up = _up_seconds(self._began) if self._mode == "daemon" else None
            self._history.record("started", mode=self._mode, pid=os.getpid(), up_seconds=up)
        else:
            self._journal.notice(f"life {life.number} of {life.run} goes on with a new agent")
            self._history.record("taken-over", mode=self._mode, pid=os.getpid())
            self.trained = True
        self._phase = "restoring"

    def restored(self, event: StateReady, *, newest: Held | None) -> None:
        """What the trainer resumes from is in memory. ``newest``: what lay there already."""
        if self._phase != "draining":
            self._phase = "training"
        held = event.held
        if held is None:
            if self._job.taken_over is None:
                self._journal.info("nothing to resume from: starting at step 0")
                self.history.record("fresh", seconds=round(event.seconds, 3))
            if event.parent is not None:
                self.reached_step = max(self.reached_step, event.parent.step)
            return
        self.reached_step = max(self.reached_step, held.step)
        if event.left:
            self._left(event, held, newest=newest)
            return
        self._resumed_from = (held.life, held.step)
        size = held.bytes + len(held.notes.table) + len(held.notes.values)
        self._journal.info(
            f"restored {step_text(held.step)} (life {held.life}) from {held.source} "
            f"in {duration_text(event.seconds)}, {bytes_text(size)}",
            step=held.step,
        )
        if event.parent is not None and event.parent.reason == "finished":
            self._journal.notice(
                "that was the end of a finished run: it goes on only if the script has more to do now; "
                "to begin anew, take another --run"
            )
        self.history.record(
            "restored",
            checkpoint=[held.life, held.step],
            seconds=round(event.seconds, 3),
            bytes=size,
            source=held.source,
        )

    def _left(self, event: StateReady, held: Held, *, newest: Held | None) -> None:
        """A predecessor died, and what it had in memory is there."""
        saved = event.parent is not None and event.parent.step >= held.step
        then = "saving it now" if held.ours else "the next save takes its place"
        if newest is not None and newest.step > held.step:
            then = f"{step_text(newest.step)}, which has come since, is saved instead"
        if saved:
            then = "it is saved"
        text = f"found {step_text(held.step)} in memory, left by the agent that died: {then}"
        self._journal.notice(text, step=held.step)
        self.history.record("found", step=held.step, saved=saved)

    def observe(self, talk: Conversation | None, saves: Saves, end: EndGame) -> None:
        """Look at the trainer, and write down what changed."""
        if talk is not None and talk.page.boundary_ns:
            self.reached_step = max(self.reached_step, talk.page.step)
            if not self.trained and self._history is not None:
                self.trained = True
                seconds = time.monotonic() - self._began
                self._journal.info(
                    f"training: {step_text(talk.page.step)} reached {duration_text(seconds)} after the start",
                    step=talk.page.step,
                )
                self._history.record("training", step=talk.page.step, seconds=round(seconds, 3))
        now = time.monotonic()
        if self._history is not None:
            self._heartbeat.observe(talk, self._history, now)
        trainer = talk.pid if talk is not None and not talk.gone else None
        if now >= self._next_status or trainer != self._trainer:
            # Who trains is told at once: if we are killed, the next agent waits for that process's last save.
            self._trainer = trainer
            self._next_status = now + STATUS_SECONDS
            self._write_status(talk, saves, end)

    def saved(self, event: Uploaded) -> None:
        """A snapshot became a checkpoint."""
        self._saved_at = iso_text(datetime.now(timezone.utc))
        self._next_status = 0.0
        self._place.notify.status(f"saved {step_text(event.held.step)}")
        self._hook("on_saved", step=event.held.step, reason=event.held.reason)

    def trainer_ended(self, message: Ended) -> None:
        """The trainer said its last word."""
        self.reached_step = max(self.reached_step, message.step)
        if message.outcome == "exception":
            self._why = message.message
            self._journal.warning(f"the training failed at {step_text(message.step)}: {message.message}")

    def crashed(self, how: str, *, number: int, of: int) -> None:
        """The command is started again."""
        self._journal.warning(f"the training crashed ({how}); starting it again, {number} of {of}")
        self.history.record(
            "crashed", how=how, step=self.reached_step, restart=number, message=self._take_why()
        )

    def crashed_under_systemd(self, outcome: Outcome | None) -> None:
        """The training is gone without a last word, or with an error; systemd starts it again or not."""
        how = "an exception" if outcome == "exception" else "without a last word"
        self._journal.warning(
            f"the training ended at {step_text(self.reached_step)}: {how}", step=self.reached_step
        )
        self.history.record("crashed", how=how, step=self.reached_step, message=self._take_why())

    def noticed(self, notice: Notice, *, now: float) -> bool:
        """Somebody announced a reclaim. False if that was known."""
        if notice.id in self._seen or self._history is None:
            return False
        self._seen.add(notice.id)
        self._notice = notice
        left = None if notice.deadline is None else round(notice.deadline - now, 3)
        when = "" if left is None else f", {duration_text(max(left, 0.0))} left"
        what = "reclaim announced" if notice.kind == "reclaim" else "early save asked for"
        self._journal.notice(f"{what} by {notice.source} ({notice.id}){when}")
        self._history.record(
            "notice", kind=notice.kind, source=notice.source, id=notice.id, seconds_left=left
        )
        if notice.deadline is not None and notice.kind == "reclaim":
            self._deadline = min(notice.deadline, self._deadline or notice.deadline)
        self._hook("on_notice", reason=notice.kind, source=notice.source)
        return True

    def told_to_stop(self, name: str, deadline: float | None) -> None:
        """A signal that somebody else than a person sends: the notice of all who have no other."""
        self._deadline = deadline
        self._hook("on_notice", reason="signal", source=name)

    def called_off(self, withdrawn: Withdrawn, *, late: bool) -> bool:
        """A notice no longer stands. False if nobody was told of it."""
        if withdrawn.id not in self._seen:
            return False
        self._seen.discard(withdrawn.id)  # should it come back, it is news
        if self._notice is not None and self._notice.id == withdrawn.id:
            self._notice = None
        if withdrawn.by:
            return True  # what took its place has a line of its own
        then = "too late: the training is already stopping" if late else "training goes on"
        self._journal.notice(f"{withdrawn.source} called off what it announced ({withdrawn.id}): {then}")
        self.history.record("called-off", source=withdrawn.source, id=withdrawn.id, late=late)
        return True

    def planned(
        self,
        plan: Plan,
        figures: Figures,
        *,
        now: float,
        deadline: float | None,
        notice: Notice | None = None,
    ) -> None:
        """What is done about the notices that stand, and by which figures."""
        own = deadline if notice is None else notice.deadline
        earlier = own is not None and deadline is not None and deadline < own - EARLIER_SECONDS
        text = f"an earlier deadline stands: {plan.text}" if earlier else plan.text
        self._journal.notice(text)
        self.history.record(
            "plan",
            id=None if notice is None else notice.id,
            text=text,
            action=plan.action,
            fits=plan.fits,
            step=self.reached_step,
            seconds_left=None if deadline is None else round(deadline - now, 3),
            train_on_seconds=round(plan.stop_at - now, 3),
            **plan.need.seconds(),
            changed_bytes=figures.changed_bytes,
            bytes_per_second=None if figures.rate is None else round(figures.rate),
            in_flight_seconds=_rounded(figures.in_flight_seconds),
            restore_seconds=_rounded(figures.restore_seconds),
        )

    def superseded(self, error: OutliveError) -> None:
        """A newer life exists."""
        if self._history is not None:
            self._history.record("superseded", step=self.reached_step, message=str(error))

    def draining(self, saves: Saves) -> None:
        """Nobody trains any more; the last upload is under way."""
        if self._phase != "draining" and saves.newest is not None:
            self._phase = "draining"
            self._journal.info(f"finishing the save of {step_text(saves.newest.step)}")

    def failed(self, error: OutliveError, code: Exit) -> None:
        """The life ended before it could begin."""
        if self._history is not None:
            self._history.record("ended", outcome="failed", exit=int(code), message=str(error))
            self._hook("on_end", outcome="failed")

    def ended(self, verdict: Verdict, totals: Totals, *, cause: Cause | None) -> None:
        """The life is over."""
        self._phase = "ended"
        seconds = time.monotonic() - self._began
        count = totals.checkpoints
        saves = f"{count:,} checkpoint{'s' if count != 1 else ''}, {bytes_text(totals.sent_bytes)} sent"
        number = self._life.number if self._life is not None else 0
        self._journal.notice(
            f"life {number}: the run {verdict.text} "
            f"({step_text(self.reached_step)}, {saves}, {duration_text(seconds)})",
            step=self.reached_step,
        )
        if self._history is not None:
            self._history.record(
                "ended",
                outcome=verdict.outcome,
                exit=int(verdict.exit),
                step=self.reached_step,
                saved_step=totals.saved_step,
                resumed_step=totals.resumed_step,
                steps_lost=verdict.steps_lost,
                checkpoints=count,
                bytes_sent=totals.sent_bytes,
                seconds=round(seconds, 3),
                message=self._take_why(),
            )
            self._hook("on_end", outcome=verdict.outcome, reason=cause or "")

    def _take_why(self) -> str:
        """What the trainer said as it failed, for one event."""
        why, self._why = self._why, ""
        return why

    def close(self, *, patient: bool, seconds: float) -> None:
        """Wait a while for the history to be written, and for the hooks within so many seconds."""
        began = time.monotonic()
        if self._history is not None:
            self._history.close(timeout=LAST_WRITES_SECONDS if patient else HASTY_WRITES_SECONDS)
        left = seconds - (time.monotonic() - began)
        self._hooks.close(seconds=max(left, LEAST_HOOK_SECONDS), meanwhile=self._still_here)

    def _hook(self, name: str, *, step: int | None = None, **facts: str) -> None:
        reached = self.reached_step if step is None else step
        self._hooks.run(name, deadline=self._deadline, step=reached, **facts)

    def _still_here(self) -> None:
        self._place.notify.alive()
        self._place.notify.extend()

    def _write_status(self, talk: Conversation | None, saves: Saves, end: EndGame) -> None:
        progress, totals = saves.progress, saves.totals
        phase = "saving" if self._phase == "training" and progress is not None else self._phase
        page = talk.page if talk is not None else None
        trained = page is not None and page.boundary_ns > 0
        current = status.Status(
            pid=os.getpid(),
            mode=self._mode,
            run=self._job.run,
            store=self._job.location,
            phase=phase,
            started_at=self._started_at,
            written_at=iso_text(datetime.now(timezone.utc)),
            life=self._life.number if self._life is not None else None,
            trainer_pid=talk.pid if talk is not None and not talk.gone else None,
            step=self.reached_step if self._history is not None else None,
            epoch=page.epoch if page is not None and trained else None,
            step_seconds=page.step_ns / 1e9 if page is not None and page.step_ns else None,
            resumed_from=self._resumed_from,
            saved_step=totals.saved_step if totals.checkpoints else None,
            saved_at=self._saved_at,
            saved_bytes=totals.bytes,
            saved_seconds=totals.seconds,
            sending_step=progress[0].step if progress is not None else None,
            sent_bytes=progress[1].done if progress is not None else None,
            sending_bytes=progress[1].total if progress is not None else None,
            notice=self._notice.source if self._notice is not None else None,
            deadline=_wall(end.deadline),
            interval=saves.interval_text(),
            problem=str(saves.problem) if saves.problem is not None else None,
        )
        try:
            status.write(self._place.directory, current)
        except OSError:
            return  # a full disk must not cost the run; the journal and the history tell the same


def _up_seconds(began: float) -> float | None:
    """From when systemd began on this machine, or in this container, until this process did."""
    now = time.time()
    try:
        systemd = Path("/run/systemd/private").stat().st_ctime
    except OSError:
        return None
    return round(max(0.0, now - (time.monotonic() - began) - systemd), 3)


def _wall(deadline: float | None) -> str | None:
    if deadline is None:
        return None
    return iso_text(datetime.now(timezone.utc) + timedelta(seconds=deadline - time.monotonic()))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
