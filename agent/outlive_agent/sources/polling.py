"""The loop around every metadata server: what is new is told once, what vanished is called off, and a server
that fails is one line in the journal and one more when it is back. It ends with the life, never before.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from outlive_agent.journal import Journal
from outlive_agent.notice import Notice, Tell, Withdrawn
from outlive_agent.sources.metadata_http import NoAnswer

FAILURES = 3
"""So many in a row are an illness: a single 503 is everyday life."""
SHORTEST_WAIT = 0.5
"""Seconds until the next look after a failure; the first ones are tried again sooner than a good one."""
LOOKS_WITHOUT = 2
"""So many looks must miss an announcement before it is called off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One question. ``look`` returns all that stands announced there now, or raises ``NoAnswer``."""

    look: Callable[[], Sequence[Notice]]
    every: int = 1
    """Asked in one of so many rounds."""


class Server(Protocol):
    """One provider's metadata server. The first key is the one whose silence is worth a line."""

    name: str
    period: float
    longest_wait: float

    @property
    def keys(self) -> Sequence[Key]: ...

    def close(self) -> None: ...


class Polling:
    """A source. ``standing`` is what an earlier agent on this machine was told and has not acted on.

    ``acted_on`` are the ids of what one has. If such a one is not announced any more it is called off, so
    that it is news should it come again: some providers have one id for all their reclaims.
    """

    def __init__(
        self,
        server: Server,
        *,
        journal: Journal,
        standing: Iterable[Notice] = (),
        acted_on: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = server.name
        self._server = server
        self._health = _Health(server.name, journal=journal)
        self._clock = clock
        self._round = 0
        self._answers: dict[int, Sequence[Notice]] = {}
        self._missed = {notice.id: 0 for notice in standing}
        self._acted_on = set(acted_on)

    def run(self, tell: Tell, closing: threading.Event) -> None:
        """Ask for ever."""
        wait = 0.0
        try:
            while not closing.wait(wait):
                try:
                    wait = self.look(tell)
                except Exception as error:
                    # A server may say things that nobody has thought of; that must not cost the later notice.
                    wait = self._failed(NoAnswer(f"{type(error).__name__}: {error}"))
        finally:
            self._server.close()

    def look(self, tell: Tell) -> float:
        """One round. Returns how long to wait before the next."""
        first, *others = self._server.keys
        number, self._round = self._round, self._round + 1
        try:
            self._answers[0] = first.look()
        except NoAnswer as error:
            return self._failed(error)
        self._health.answered()
        self._compare(tell)
        for position, key in enumerate(others, 1):
            if number % key.every:
                continue
            try:
                self._answers[position] = key.look()
            except NoAnswer:
                continue  # don't know: what was announced there still stands
        self._compare(tell, whole=True)
        return self._server.period

    def _compare(self, tell: Tell, *, whole: bool = False) -> None:
        announced = {notice.id: notice for found in self._answers.values() for notice in found}
        for known, notice in announced.items():
            if known not in self._missed:
                self._missed[known] = 0
                tell(notice)
        if not whole:
            return
        for known in self._acted_on - announced.keys():
            tell(Withdrawn(source=self.name, id=known, by=_successor(known, announced)))
        self._acted_on.clear()
        for known in list(self._missed):
            self._missed[known] = 0 if known in announced else self._missed[known] + 1
            if self._missed[known] >= LOOKS_WITHOUT:
                del self._missed[known]
                tell(Withdrawn(source=self.name, id=known, by=_successor(known, announced)))

    def _failed(self, error: NoAnswer) -> float:
        failures = self._health.failed(error, self._clock())
        patient = self._server.period * 2.0 ** min(failures - 3, 10)
        return max(SHORTEST_WAIT, min(patient, self._server.longest_wait))


def _successor(known: str, announced: Iterable[str]) -> str:
    """What the same event is called now: an id is its subject, and after an @ what may change."""
    subject = known.partition("@")[0]
    return next((other for other in announced if other.partition("@")[0] == subject), "")


class _Health:
    """Says when a server falls ill and when it is well again."""

    def __init__(self, name: str, *, journal: Journal) -> None:
        self._name = name
        self._journal = journal
        self._failures = 0
        self._since = 0.0
        self._ill = False

    def answered(self) -> None:
        if self._ill:
            self._journal.info(f"{self._name}: the metadata server answers again")
        self._failures, self._ill = 0, False

    def failed(self, error: NoAnswer, now: float) -> int:
        """How often in a row it has failed."""
        if not self._failures:
            self._since = now
        self._failures += 1
        grave = self._failures >= FAILURES and now - self._since >= error.patience_seconds
        if grave and not self._ill:
            self._ill = True
            what = f"{self._name}: a reclaim may go unnoticed, since the metadata server fails"
            self._journal.problem(what, error)
        return self._failures
