"""Where a rank stands: alone, or with a seat in the council and a place in the crew of its node."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from outlive.errors import ConfigError, OutliveError, ProtocolError
from outlive.staging.messages import Outcome, Welcome
from outlive.staging.rehearsal import VARIABLE as REHEARSAL
from outlive.train.agreed import AgreedRequests
from outlive.train.arenas import Arenas, Memory
from outlive.train.council import Agreed, Chair, Council, Hall, JobStore
from outlive.train.crew import Crew
from outlive.train.formation import form
from outlive.train.grounds import Grounds
from outlive.train.link import Given, Link, RefusedError, Stopped
from outlive.train.member import Grounded, join_first
from outlive.train.ranks import Ranks
from outlive.train.requests import Requests
from outlive.train.saving import Saving, say
from outlive.train.sidecar import attach_agent, succeed_agent
from outlive.train.stop import EXIT_CONFIG, EXIT_RESUME, Signals
from outlive.train.tracked import Tracked

EXIT_SECONDS = 10.0
"""How long a stopped rank may take to exit: libraries wait there for peers that are gone."""

Capture: TypeAlias = Callable[[], Mapping[str, Any]]


class Alone:
    """The only rank there is: it has its agent and its memory to itself."""

    first = True

    def say(self, line: str) -> None:
        """Advice about the script, which is the same in every rank: the first one gives it."""
        if self.first:
            say(line)

    def connect(
        self, settings: Mapping[str, str], *, stopped: Callable[[], bool]
    ) -> "tuple[Link, Given | None]":
        """The conversation with the agent, and what it gave."""
        return attach_agent(settings, stopped=stopped, say=say)

    def saving(self, link: Link, given: Given | None, *, capture: Capture, hide: bool) -> Saving:
        """How snapshots are taken, and where they go."""
        arenas = Arenas(link, None if given is None else given.arena)
        return Saving(link, capture=capture, arenas=arenas, succeed=succeed_agent, hide=hide)

    def requests(self, saving: Saving, signals: Signals, *, every: int | None, tracked: Tracked) -> Requests:
        """What comes of somebody's wish to save."""
        return Requests(saving, signals, every=every)

    def begin(self, step: int) -> None:
        """The loop goes on from this step."""

    def first_boundary(self, tracked: Tracked) -> None:
        """The state is there, and can be saved from now on."""

    def leave(self) -> None:
        """The loop is over."""

    def close(self, outcome: Outcome) -> None:
        """Nobody else is left behind."""


class Company(Alone):
    """One of several ranks. :meth:`connect` comes first."""

    memory: Memory
    _store: JobStore

    def __init__(self, ranks: Ranks) -> None:
        self.first = ranks.rank == 0
        self.ranks = ranks
        self._crew: Crew | None = None
        self._council: Council | None = None

    def connect(
        self, settings: Mapping[str, str], *, stopped: Callable[[], bool]
    ) -> "tuple[Link, Given | None]":
        """The conversation with the agent, or with the first rank of this node."""
        self._store = form(self.ranks, stopped=stopped)
        if not self.ranks.first:
            member = join_first(self.ranks, self._store, stopped=stopped, say=say)
            try:
                given = member.open(ranks=self.ranks, stopped=stopped, say=say)
            except BaseException:
                member.close()
                raise
            self.memory = Grounded(member)
            return member, given
        crew = self._crew = Crew(self.ranks, say=say)
        self._store.set(f"crew/{self.ranks.node}", crew.path)
        try:
            link, given = attach_agent(settings, ranks=self.ranks, stopped=stopped, say=say)
        except OutliveError as error:
            crew.refuse(str(error), hint=error.hint)
            raise
        self.memory = crew.begin(link, given)
        return link, given

    def saving(self, link: Link, given: Given | None, *, capture: Capture, hide: bool) -> Saving:
        """How this rank's part of a snapshot is taken."""
        return Saving(link, capture=capture, arenas=self.memory, succeed=self.succeed, hide=hide)

    def succeed(self, welcome: Welcome, *, at_once: bool, say: Callable[[str], None]) -> Link:
        """Another agent for the life that `welcome` named."""
        if self._crew is None:
            raise ProtocolError("the first rank of this node is gone")
        link = succeed_agent(welcome, ranks=self.ranks, at_once=at_once, say=say)
        self._crew.succeeded(link)
        return link

    def requests(
        self, saving: Saving, signals: Signals, *, every: int | None, tracked: Tracked
    ) -> AgreedRequests:
        """The seat in the council, and who wishes there."""
        memory = self.memory
        requests: AgreedRequests

        def permit(agreed: Agreed) -> None:
            if isinstance(memory, Grounds):
                memory.permit(agreed.stop)

        hall = Hall(
            rank=self.ranks.rank,
            world=self.ranks.world,
            memory=memory.vacant if isinstance(memory, Grounds) else lambda stop: None,
            permit=permit,
            every=lambda: requests.every(),
            step_seconds=lambda: saving.link.page.step_ns / 1e9,
            say=say,
        )
        council = self._council = (Chair if self.ranks.rank == 0 else Council)(hall, self._store)
        requests = AgreedRequests(
            saving,
            signals,
            every=every,
            council=council,
            first=self.ranks.first,
            tracked=tracked,
        )
        return requests

    def begin(self, step: int) -> None:
        """The loop goes on from this step."""
        if self._council is not None:
            self._council.step = step
            self._council.start()

    def first_boundary(self, tracked: Tracked) -> None:
        """Tell the others what this rank holds of what all should hold alike."""
        if self._council is not None:
            self._council.fingerprint = tracked.fingerprint()

    def leave(self) -> None:
        """The loop is over."""
        if self._council is not None:
            self._council.leave()

    def close(self, outcome: Outcome) -> None:
        """Part from the others. After an exception nobody is waited for: they may wait for this rank."""
        if self._council is not None:
            self._council.close()
        if self._crew is not None:
            self._crew.close(patient=outcome != "exception")
        if outcome == "stopped":
            self._exit_soon()

    def _exit_soon(self) -> None:
        """See to it that this process ends, whatever its libraries wait for at their exit."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, EXIT_SECONDS)


def company() -> Alone:
    """Where this process stands. ``ConfigError`` where that can't be told, or can't be kept."""
    ranks = Ranks.here()
    if ranks is not None and os.environ.get(REHEARSAL):
        raise ConfigError(
            f"a training of {ranks.world} ranks can't be rehearsed yet", hint="rehearse it with one process"
        )
    return Alone() if ranks is None else Company(ranks)


def attach_or_exit(
    standing: Alone, settings: Mapping[str, str], signals: Signals
) -> "tuple[Link, Given | None]":
    """Connect. ``SystemExit`` if a signal comes meanwhile, or if this process must not train."""
    try:
        return standing.connect(settings, stopped=lambda: bool(signals.received))
    except Stopped:
        raise SystemExit(EXIT_RESUME) from None
    except RefusedError as why:
        say(f"Error: {why}")
        if why.hint:
            say(f"Try: {why.hint}")
        raise SystemExit(EXIT_CONFIG) from None
