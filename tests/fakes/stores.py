"""Stores that misbehave in one exact way, around a store that does not."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from outlive.errors import Unavailable
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.memory import MemoryStore

_T = TypeVar("_T")

Failure = Literal["killed before", "killed after", "refused", "answer lost"]


class Killed(BaseException):
    """The process is dead: nobody catches this, and no request follows."""


class UnconditionalStore(MemoryStore):
    """Ignores create-only, and says so."""

    @property
    def limits(self) -> Limits:
        return Limits(create_only=False, concurrency=4)

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        super().put(key, body)


class LyingStore(UnconditionalStore):
    """Ignores create-only, although it passed the probe."""

    @property
    def limits(self) -> Limits:
        return Limits(create_only=True, concurrency=4)


class Wrapped:
    """Every request goes through ``around``, which may do it, or not, or do something first."""

    def __init__(self, store: ObjectStore) -> None:
        self.inner = store

    @property
    def location(self) -> str:
        return self.inner.location

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        return request()

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        self.around("put", key, lambda: self.inner.put(key, body, create_only=create_only))

    def get(self, key: str, *, at_most: int) -> bytes:
        return self.around("get", key, lambda: self.inner.get(key, at_most=at_most))

    def read_into(self, key: str, buffer: memoryview) -> None:
        self.around("get", key, lambda: self.inner.read_into(key, buffer))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return iter(self.around("list", prefix, lambda: [*self.inner.list(prefix, after=after)]))

    def delete(self, keys: Sequence[str]) -> None:
        self.around("delete", keys[0] if keys else "", lambda: self.inner.delete(keys))

    def now(self) -> datetime:
        return self.around("now", "", self.inner.now)


class FailingStore(Wrapped):
    """The ``at``-th request (from 0) meets ``failure``; after a kill no other request gets through."""

    def __init__(self, store: ObjectStore, *, at: int, failure: Failure) -> None:
        super().__init__(store)
        self._at = at
        self._failure = failure
        self._lock = threading.Lock()
        self.requests = 0

    @property
    def met(self) -> bool:
        return self.requests > self._at

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        with self._lock:
            number = self.requests
            self.requests += 1
        killed = self._failure.startswith("killed")
        if number == self._at and self._failure in ("killed after", "answer lost"):
            request()
        if number == self._at or (killed and number > self._at):
            raise Killed if killed else Unavailable(f"{action} {key}: no answer")
        return request()


class BlockingStore(Wrapped):
    """Requests whose action and key satisfy ``stops`` wait for ``go``; ``arrived`` is set when one does."""

    def __init__(self, store: ObjectStore, *, stops: Callable[[str, str], bool]) -> None:
        super().__init__(store)
        self._stops = stops
        self.arrived = threading.Event()
        self.go = threading.Event()

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        if self._stops(action, key) and not self.go.is_set():
            self.arrived.set()
            if not self.go.wait(10):
                raise TimeoutError("nobody let the request go on")
        return request()


class CountingStore(Wrapped):
    """Remembers every request."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self.seen: list[tuple[str, str]] = []

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        with self._lock:
            self.seen.append((action, key))
        return request()
