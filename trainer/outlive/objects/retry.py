"""Trying again, as a wrapper around any store: only what may help, and never past the deadline."""

import random as _random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from outlive.errors import Throttled, Unavailable
from outlive.objects.congestion import Congestion
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.probe import Assuming

_T = TypeVar("_T")


@runtime_checkable
class Cuttable(Protocol):
    """A store whose requests can be ended from outside."""

    def cut(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait: doubling from ``first_seconds`` to ``most_seconds``, half of it by chance.

    ``deadline_seconds``: no new attempt begins later than this after the first one began.
    """

    first_seconds: float = 0.5
    most_seconds: float = 20.0
    deadline_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """One attempt that failed and will be repeated: a line for the journal."""

    action: str
    key: str
    attempt: int
    delay_seconds: float
    error: Unavailable


class Retrying:
    """Repeats what failed with ``Unavailable``; every other error is passed up at once.

    An attempt whose answer was lost may have succeeded. Plain puts, reads and deletions may simply be
    repeated. A create-only put may then find its own object: ``AlreadyExists`` is passed up, and the caller
    reads the object back and looks for its own nonce.

    Once ``closing`` is set nothing is repeated any more, and a wait that is going on ends.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        backoff: Backoff | None = None,
        on_retry: Callable[[Retry], None] | None = None,
        closing: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.inner = store
        self._backoff = backoff or Backoff()
        self._on_retry = on_retry
        self._closing = closing or threading.Event()
        self._clock = clock
        self._sleep = sleep or self._closing.wait
        self._random = random
        self._congestion = Congestion(store.limits.concurrency, clock=clock)

    def __repr__(self) -> str:
        return f"Retrying({self.inner!r})"

    @property
    def location(self) -> str:
        return self.inner.location

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    @property
    def transfers_allowed(self) -> int:
        """How many transfers at once the store has shown to take."""
        return self._congestion.allowed

    def assume(self, *, create_only: bool) -> None:
        """Pass on what a probe has found; most stores know it by themselves."""
        if isinstance(self.inner, Assuming):
            self.inner.assume(create_only=create_only)

    def cut(self) -> None:
        """End the requests that are under way: each fails with ``Unavailable``. New ones may follow."""
        if isinstance(self.inner, Cuttable):
            self.inner.cut()

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        self._repeat(
            "put", key, lambda: self._in_turn(lambda: self.inner.put(key, body, create_only=create_only))
        )

    def get(self, key: str, *, at_most: int) -> bytes:
        return self._repeat("get", key, lambda: self.inner.get(key, at_most=at_most))

    def read_into(self, key: str, buffer: memoryview) -> None:
        self._repeat("get", key, lambda: self._in_turn(lambda: self.inner.read_into(key, buffer)))

    def delete(self, keys: Sequence[str]) -> None:
        name = keys[0] if len(keys) == 1 else f"{len(keys)} keys"
        self._repeat("delete", name, lambda: self.inner.delete(keys))

    def now(self) -> datetime:
        return self._repeat("ask the time", "", self.inner.now)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Goes on behind the last key that was seen, so a repeated listing shows nothing twice."""
        attempts = self._attempts("list", prefix)
        while True:
            try:
                for info in self.inner.list(prefix, after=after):
                    yield info
                    after = info.key
                    attempts = self._attempts("list", prefix)  # it moves: the patience begins anew
            except Unavailable as error:
                attempts.failed(error)
            else:
                return

    def _attempts(self, action: str, key: str) -> "_Attempts":
        return _Attempts(self._backoff, self._clock, self._clock(), self._random, self._wait(action, key))

    def _repeat(self, action: str, key: str, attempt: Callable[[], _T]) -> _T:
        attempts = self._attempts(action, key)
        while True:
            try:
                return attempt()
            except Unavailable as error:
                attempts.failed(error)

    def _in_turn(self, transfer: Callable[[], None]) -> None:
        """One attempt, when the store has room for it; the pause before the next one takes no room."""
        with self._congestion.slot():
            try:
                transfer()
            except Throttled:
                self._congestion.refused()
                raise
        self._congestion.succeeded()

    def _wait(self, action: str, key: str) -> Callable[[int, float, Unavailable], bool]:
        def wait(number: int, delay: float, error: Unavailable) -> bool:
            """False if the store is being closed: then the error is final."""
            if self._closing.is_set():
                return False
            if self._on_retry is not None:
                self._on_retry(
                    Retry(action=action, key=key, attempt=number, delay_seconds=delay, error=error)
                )
            self._sleep(delay)
            return not self._closing.is_set()

        return wait


class _Attempts:
    """The failed attempts at one thing."""

    def __init__(
        self,
        backoff: Backoff,
        clock: Callable[[], float],
        began: float,
        random: Callable[[], float],
        wait: Callable[[int, float, Unavailable], bool],
    ) -> None:
        self._backoff, self._clock, self._began, self._random, self._wait = (
            backoff,
            clock,
            began,
            random,
            wait,
        )
        self._failures = 0

    def failed(self, error: Unavailable) -> None:
        """Return when it is time for the next attempt; raise if there is to be none."""
        self._failures += 1
        ceiling = min(
            self._backoff.most_seconds, self._backoff.first_seconds * 2 ** min(self._failures - 1, 30)
        )
        delay = ceiling * (0.5 + 0.5 * self._random())
        spent = self._clock() - self._began
        if spent + delay >= self._backoff.deadline_seconds or not self._wait(self._failures, delay, error):
            if self._failures == 1:
                raise error
            raise type(error)(
                f"{error} (tried {self._failures} times in {spent:.0f} s)", hint=error.hint
            ) from error


def _conforms(store: Retrying) -> ObjectStore:
    return store
