"""The life's saves: when to ask for one, what became of each, and the newest state that lies in memory."""

import time
from dataclasses import dataclass

from outlive.errors import OutliveError
from outlive.staging.control import NO_STEPS
from outlive.staging.messages import Committed as CommittedPacket
from outlive.staging.messages import Failed, Reason
from outlive.store.commit import Committer
from outlive_agent.conversation import Conversation
from outlive_agent.events import Post, Uploaded, UploadFailed
from outlive_agent.held import Held
from outlive_agent.history import History
from outlive_agent.journal import Journal, step_text
from outlive_agent.kept_memory import KeptMemory
from outlive_agent.measured import Figures, Measured, Progress
from outlive_agent.pace import Pace
from outlive_agent.planner import needed
from outlive_agent.settings.values import Every
from outlive_agent.units import bytes_text, duration_text
from outlive_agent.upload import Uploader

RESCUE_ATTEMPTS, FIRST_RESCUE_PAUSE_SECONDS = 4, 1.0
"""How often the last state is tried when no trainer is left that could bring a newer one."""


@dataclass(slots=True)
class Totals:
    """What this life has cost and kept so far."""

    saved_step: int | None = None
    """Step of the newest checkpoint this life resumed from or wrote."""
    resumed_step: int = 0
    checkpoints: int = 0
    sent_bytes: int = 0
    bytes: int | None = None
    seconds: float | None = None


class Saves:
    """Only the deciding thread uses it. ``talk`` is the trainer that there is at the moment."""

    def __init__(self, every: Every, *, journal: Journal, memory: KeptMemory | None = None) -> None:
        self.talk: Conversation | None = None
        self._memory = memory
        left = memory.left.held if memory is not None and memory.left is not None else None
        self._newest = left
        self._left = left
        """What the agent before this one left, until the store has said what it is worth."""
        self._early: Held | None = None
        """A snapshot that came before the store could be asked."""
        self.totals = Totals()
        self.problem: OutliveError | None = None
        self.pace = Pace(every)
        self.measured = Measured()
        self._every = every
        self._journal = journal
        self._history: History | None = None
        self._uploader: Uploader | None = None
        self._asked: int | None = None
        self._wanted: Reason | None = None
        """Asked for while nobody was there to be asked."""
        self._rescues = 0
        self._rescue_at = 0.0
        self._given_up = False
        self._open = 0
        """Uploads whose outcome was not told yet."""

    def open(self, committer: Committer, *, resumed: int | None, post: Post, history: History) -> None:
        """From now on snapshots become checkpoints of this life, which resumed from that step."""
        self.totals.saved_step = resumed
        self.totals.resumed_step = resumed or 0
        self._uploader = Uploader(committer, post=post)
        self._history = history

    def begin(self, held: Held | None, *, left: bool) -> None:
        """The store was asked: this state comes first. ``left``: it is what the agent before this one left.

        If that is not saved yet it is saved now, as is what a trainer that lived on has brought meanwhile.
        """
        if self._uploader is None:
            raise RuntimeError("a state came before its life was opened")
        before, self._left = self._left, None
        early, self._early = self._early, None
        if early is None and not left:
            self.newest = held
        unsaved = early or (self._newest if left and self.unsaved else None)
        saving = unsaved if unsaved is not None and unsaved.ours else None
        if saving is not None:
            self._open += 1
            self._uploader.submit(saving)
        if before is not None and (saving is None or saving is early):
            self._free(before)
        self._keep()

    @property
    def newest(self) -> Held | None:
        """The newest state that lies in memory."""
        return self._newest

    @newest.setter
    def newest(self, held: Held | None) -> None:
        if held is self._newest:
            return
        self._newest = held
        self._keep()

    def carry_over(self, talk: Conversation) -> None:
        """This trainer outlived its agent, and goes on with the memory in which that agent held a state."""
        if self._newest is not None:
            ours = self.pending(self._newest) or (not self.opened and self._newest.ours)
            self.newest = talk.carry_over(self._newest, uploading=ours)

    def settle(self) -> None:
        """The life is over: only what is not saved must stay in memory."""
        if self._given_up or not self.unsaved:
            self.newest = None

    @property
    def opened(self) -> bool:
        """Whether the life's first state has come."""
        return self._uploader is not None

    def give_up(self) -> None:
        """Nothing more of this life will be saved."""
        self._given_up = True
        self.drop_current()

    def close(self) -> None:
        """Give up what is under way."""
        if self._uploader is not None:
            self._uploader.close()

    def trainer_started(self, talk: Conversation, held: Held | None) -> None:
        """A trainer has its state: what it was given is the newest there is."""
        self.talk = talk
        self.newest = held
        self._asked = None
        self._hold_steps(False)
        self.pace.started(time.monotonic())
        self.measured.trainer_came()
        if self._wanted is not None:
            self.ask(self._wanted)

    def trainer_gone(self) -> None:
        """Nobody is there to be asked."""
        self.talk = None

    def fetched_again(self, held: Held | None) -> None:
        """The newest state was lost with its trainer; this is the newest checkpoint."""
        self.totals.saved_step = None if held is None else held.step

    def ask(self, reason: Reason, *, stop: bool = False, deadline: float | None = None) -> None:
        """Ask the trainer for a snapshot at its next boundary; if there is none yet, once there is."""
        self._wanted = None
        if self.talk is not None:
            nanoseconds = 0 if deadline is None else max(1, int(deadline * 1e9))
            self._asked = self.talk.page.ask(reason, stop=stop, deadline_ns=nanoseconds)
        elif not stop:
            self._wanted = reason

    def ask_if_due(self, now: float, *, stop_at: float | None) -> None:
        """Ask for what the interval wants, unless it would be in the way of a last save that is planned."""
        late = stop_at is not None and now + needed(self.figures()).safe > stop_at
        self._hold_steps(late or self.pace.retrying)
        due = self.due_at()
        if due is not None and now >= due and not late:
            self.ask("interval")
        elif self.talk is None:
            self._try_again(now)

    def observe(self) -> None:
        """Look at how long the steps take."""
        page = self.talk.page if self.talk is not None else None
        if page is not None and page.boundary_ns:
            mean = page.step_ns / 1e9 if page.step_ns else None
            self.measured.stepped(page.step, page.boundary_ns / 1e9, mean=mean)

    def due_at(self) -> float | None:
        """When to ask for the next save; None while one is asked for, or an upload still has the arena."""
        if self.talk is None or self._uploader is None or self._open:
            return None
        if self._asked is not None and self.talk.page.honoured < self._asked:
            return None
        return self.pace.due_at(self.figures())

    def interval_text(self) -> str:
        """The interval in words."""
        return self.pace.text(self.figures())

    def accept(self, held: Held) -> None:
        """The trainer took a snapshot."""
        self.newest = held
        self._rescues = 0
        self.measured.copied(held.copy_seconds)
        self.pace.taken(time.monotonic())
        if self._uploader is None:  # of a trainer that outlived its agent
            replaced, self._early = self._early, held
        else:
            replaced = self._uploader.submit(held)
            self._open += 1 if replaced is None else 0
        if replaced is not None:
            self._free(replaced)
            self._tell(replaced, Failed(number=replaced.number, message="a newer snapshot took its place"))

    def uploaded(self, event: Uploaded) -> None:
        """A snapshot became a checkpoint: say so to everyone."""
        self._open -= 1
        held, committed = event.held, event.committed
        totals = self.totals
        totals.checkpoints += 1
        totals.sent_bytes += committed.sent_bytes
        totals.saved_step, totals.seconds = held.step, committed.seconds
        totals.bytes = sum(blob.bytes for blob in committed.manifest.blobs())
        again = " (saves work again)" if self.pace.failures else ""
        self.problem = None
        self.pace.saved()
        self.measured.uploaded(committed.sent_bytes, committed.seconds)
        if self.talk is not None:
            self.talk.page.committed_step = held.step
        self._free(held)
        self._tell(
            held,
            CommittedPacket(
                number=held.number,
                life=held.life,
                step=held.step,
                bytes=totals.bytes,
                sent=committed.sent_bytes,
                seconds=committed.seconds,
            ),
        )
        for line in committed.put_right:
            self._journal.warning(line)
        ranks = f"{held.world} ranks, " if held.world > 1 else ""
        self._journal.info(
            f"saved {step_text(held.step)} ({held.reason}, {ranks}{bytes_text(totals.bytes)}, "
            f"{bytes_text(committed.sent_bytes)} sent) in {duration_text(committed.seconds)}{again}",
            step=held.step,
        )

    def failed(self, event: UploadFailed, *, training: bool) -> None:
        """A snapshot did not become a checkpoint. Training goes on; the newest state is tried again later."""
        self._open -= 1
        held, error = event.held, event.error
        self._free(held)
        if error is None:
            self._journal.info(f"dropped the save of {step_text(held.step)} for a newer one")
            self._tell(held, Failed(number=held.number, message="dropped for a newer snapshot"))
            return
        again = self.pace.failures > 0 and type(error) is type(self.problem)
        self.problem = error
        first = self.pace.failures == 0
        delay = self.pace.failed(time.monotonic())
        self._tell(held, Failed(number=held.number, message=str(error), hint=error.hint))
        later = f"training goes on, trying again in {duration_text(delay)}" if training else "trying again"
        if again:  # the whole story was told with the first one
            self._journal.warning(f"{step_text(held.step)} was not saved either ({later})")
        else:
            self._journal.problem(f"{step_text(held.step)} was not saved ({later})", error)
        if first and self._history is not None:
            self._history.record("save-failed", step=held.step, message=str(error))

    def rescue(self, now: float) -> bool:
        """No trainer is left: see the newest state home. True while that is under way."""
        if self._given_up:
            return False
        if self._uploader is None:
            return self.undecided
        if self._open:
            return True
        if not self.unsaved or self._rescues >= RESCUE_ATTEMPTS or self.newest is None:
            return False
        if now < self._rescue_at:
            return True
        self._rescues += 1
        self._open += 1
        self._rescue_at = now + FIRST_RESCUE_PAUSE_SECONDS * 2.0 ** (self._rescues - 1)
        self._uploader.submit(self.newest)
        return True

    @property
    def unsaved(self) -> bool:
        """Whether the newest state in memory is whole and not a checkpoint yet."""
        newest = self.newest
        if newest is None or not newest.intact:
            return False
        return self.totals.saved_step is None or newest.step > self.totals.saved_step

    @property
    def undecided(self) -> bool:
        """Whether a state lies in memory of which only the store, once it answers, knows what it is worth."""
        return self._uploader is None and self.unsaved

    @property
    def memory(self) -> Held | None:
        """The state to restart a trainer from without the network, if it is whole."""
        return self.newest if self.newest is not None and self.newest.intact else None

    @property
    def progress(self) -> tuple[Held, Progress] | None:
        """What is being uploaded, and how far it is."""
        return None if self._uploader is None else self._uploader.progress

    def pending(self, held: Held) -> bool:
        """Whether this memory is still being uploaded."""
        uploads = () if self._uploader is None else self._uploader.pending
        return any(held.arena is other.arena for other in uploads)

    def drop_current(self) -> None:
        """Give up the upload under way."""
        if self._uploader is not None:
            self._uploader.drop_current()

    def figures(self) -> Figures:
        """What a save costs by now."""
        progress = self.progress
        return self.measured.figures(None if progress is None else progress[1])

    def _try_again(self, now: float) -> None:
        """Nobody is there who could bring a newer state: after a while this one is sent once more."""
        newest, retry_at = self._newest, self.pace.retry_at
        if self._uploader is None or self._open or self._given_up or retry_at is None or now < retry_at:
            return
        if newest is not None and self.unsaved and newest.ours:
            self._open += 1
            self._uploader.submit(newest)

    def _keep(self) -> None:
        if self._memory is not None:
            self._memory.keep(self._newest)

    def _hold_steps(self, hold: bool) -> None:
        """An interval in steps is the trainer's own: let it rest, or let it go on."""
        if self.talk is not None:
            self.talk.page.every_steps = NO_STEPS if hold else self._every.steps or 0

    def _free(self, held: Held) -> None:
        if self.talk is not None:
            self.talk.done_with(held)

    def _tell(self, held: Held, packet: CommittedPacket | Failed) -> None:
        if self.talk is not None and held.page is self.talk.page and held.number:
            self.talk.tell(packet)
