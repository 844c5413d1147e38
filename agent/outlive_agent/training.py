"""The training that there is at the moment: who may be it, what it is given, and what it says."""

from contextlib import suppress

from outlive.errors import OutliveError, ProtocolError
from outlive.staging.messages import ArenaOffer, Ended, Failed, Message, Mode, Outcome, Refused, SnapshotTaken
from outlive.store.lives import Life
from outlive_agent.beginning import Beginning
from outlive_agent.conversation import SEND_SECONDS, Conversation, close_all
from outlive_agent.events import PacketCame, StateReady, TrainerCame, TrainerGone
from outlive_agent.hello import check_hello
from outlive_agent.job import Job
from outlive_agent.journal import Journal
from outlive_agent.saves import Saves


class Training:
    """One trainer at a time. Only the deciding thread uses it."""

    def __init__(self, job: Job, *, mode: Mode, saves: Saves, beginning: Beginning, journal: Journal) -> None:
        self._job = job
        self._mode = mode
        self._saves = saves
        self._beginning = beginning
        self._journal = journal
        self._early: list[TrainerCame] = []
        self._life: Life | None = None
        self._state: StateReady | None = None
        self._unfetched = job.taken_over is not None
        """The life was taken over, and nobody has asked what it resumes from: its training has it."""
        self.talk: Conversation | None = None
        """The newest conversation, also when it is over."""
        self.stopping = False
        """Nobody new may train."""
        self.superseded = False

    @property
    def attached(self) -> bool:
        """Whether a trainer was ever let in."""
        return self.talk is not None

    @property
    def connected(self) -> Conversation | None:
        """The trainer that is there now."""
        return self.talk if self.talk is not None and not self.talk.gone else None

    @property
    def pid(self) -> int | None:
        """The process that trains now."""
        return self.connected.pid if self.connected is not None else None

    @property
    def outcome(self) -> Outcome | None:
        """What the newest trainer said last, if it did."""
        return self.talk.ended.outcome if self.talk is not None and self.talk.ended is not None else None

    def life_claimed(self, life: Life) -> None:
        """Those who came early can be told who they are."""
        self._life = life
        early, self._early = self._early, []
        for came in early:
            self.came(came)

    def state_ready(self, state: StateReady) -> None:
        """Whoever waits for its state gets it."""
        self._state = state
        if self.connected is not None and not self.connected.ready:
            self._give_state(self.connected, state)

    def came(self, event: TrainerCame) -> None:
        """Let it in, or tell it why not."""
        life = self._life
        if life is None:
            self._early.append(event)
            return
        try:
            check_hello(
                event.hello,
                life=life,
                busy=self.connected is not None,
                stopping=self.stopping,
                taken_over=self._job.taken_over is not None and self._mode == "sidecar",
            )
        except ProtocolError as error:
            self._journal.problem("a training was refused", error)
            _refuse(event, error)
            return
        talk = self.talk = Conversation(event.channel, event.hello, life=life.number)
        if event.hello.life:
            self._saves.carry_over(talk)
        try:
            talk.welcome(run=self._job.run, nonce=life.nonce, mode=self._mode, store=self._job.location)
        except (EOFError, TimeoutError):
            self.hang_up()
            return
        if event.hello.life:  # it has its state, and may be asked for saves whatever the store does
            talk.ready = True
            self._saves.trainer_started(talk, self._saves.newest)
        elif self._state is not None:
            self._give_state(talk, self._state)

    def packet(self, event: PacketCame) -> Ended | None:
        """What the trainer says; its last packet is handed up."""
        talk = self.connected
        message, fds = event.received
        if talk is None or event.channel is not talk.channel:
            close_all(fds)
            return None
        try:
            if isinstance(message, ArenaOffer):
                talk.offered(message, fds)
            elif isinstance(message, SnapshotTaken) and talk.ready:
                self._snapshot(talk, message, fds)
            else:
                close_all(fds)
                talk.ended = _ended(message)
                return talk.ended
        except ProtocolError as error:
            self._journal.problem("the training's connection is closed", error)
            talk.refuse(str(error), hint=error.hint)
            self.hang_up()
        return None

    def gone(self, event: TrainerGone) -> None:
        """It closed its end, died, or spoke nonsense."""
        talk = self.connected
        if talk is None or event.channel is not talk.channel:
            event.channel.close()
            if event.error is not None:
                self._journal.problem("a connection was refused", event.error)
            return
        if event.error is not None:
            self._journal.problem("the training's connection is closed", event.error)
        self.hang_up()

    def refuse(self, error: OutliveError) -> bool:
        """Nobody may train (any more). Whether there was a training that heard it."""
        self.stopping = True
        heard = bool(self._early) or self.connected is not None
        for came in self._early:
            _refuse(came, error)
        self._early.clear()
        if self.connected is not None:
            self.connected.refuse(str(error), hint=error.hint)
        return heard

    def hang_up(self) -> None:
        """The conversation is over; its memory stays as long as somebody needs it."""
        if self.connected is not None:
            self.connected.close()
        self._saves.trainer_gone()

    def _give_state(self, talk: Conversation, state: StateReady) -> None:
        """What the trainer resumes from."""
        held = self._saves.memory
        lost = self._saves.newest is not None or self._unfetched
        if lost and held is None:
            # The trainer before this one died as it copied over the only state in memory, or with its agent.
            self._unfetched = False
            self._saves.newest = None
            self._state = None
            self._beginning.fetch_again()
            return
        try:
            uploading = held is not None and self._saves.pending(held)
            lent = talk.give(held, seconds=state.seconds, uploading=uploading)
        except (EOFError, TimeoutError):
            self.hang_up()
            return
        self._saves.trainer_started(talk, lent)

    def _snapshot(self, talk: Conversation, packet: SnapshotTaken, fds: tuple[int, ...]) -> None:
        held = talk.taken(packet, fds)
        if self.superseded:
            talk.accepted(held)
            talk.done_with(held)
            talk.tell(Failed(number=packet.number, message="a newer life of this run exists"))
        else:
            self._saves.accept(held)
            talk.accepted(held)


def _ended(message: Message) -> Ended:
    if not isinstance(message, Ended):
        raise ProtocolError(f"a {message.packet} packet came where none can be")
    return message


def _refuse(came: TrainerCame, error: OutliveError) -> None:
    with suppress(EOFError, TimeoutError):
        came.channel.send(Refused(message=str(error), hint=error.hint), timeout=SEND_SECONDS)
    came.channel.close()
