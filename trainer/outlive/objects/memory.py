"""An object store in this process's memory: the contract and nothing else, for tests and trials."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone

from outlive.errors import AlreadyExists, Damaged, NotFound
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.keys import check_key, check_prefix


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class MemoryStore:
    """Holds its own copies. Passes the same contract suite as the others: a fake that can be trusted."""

    def __init__(self, *, clock: Callable[[], datetime] = _utc_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, datetime]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._objects)} objects)"

    @property
    def location(self) -> str:
        return "memory"

    @property
    def limits(self) -> Limits:
        return Limits(create_only=True, concurrency=4)

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        check_key(key)
        held = bytes(body)
        with self._lock:
            if create_only and key in self._objects:
                raise AlreadyExists(f"{self.location}: {key} exists already")
            self._objects[key] = (held, self._clock())

    def get(self, key: str, *, at_most: int) -> bytes:
        held = self._find(key)
        if len(held) > at_most:
            raise Damaged(f"{self.location}: {key} has {len(held)} bytes, more than {at_most}")
        return held

    def read_into(self, key: str, buffer: memoryview) -> None:
        held = self._find(key)
        if len(held) != buffer.nbytes:
            raise Damaged(f"{self.location}: {key} has {len(held)} bytes instead of {buffer.nbytes}")
        buffer.cast("B")[:] = held

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with self._lock:
            found = [
                ObjectInfo(key=key, size=len(held), modified=modified)
                for key, (held, modified) in self._objects.items()
                if key.startswith(prefix) and key > after
            ]
        yield from sorted(found, key=lambda info: info.key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)

    def now(self) -> datetime:
        return self._clock()

    def _find(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            held = self._objects.get(key)
        if held is None:
            raise NotFound(f"{self.location}: {key} does not exist")
        return held[0]


def _conforms(store: MemoryStore) -> ObjectStore:
    return store
