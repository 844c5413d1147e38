"""What a store really does, found by trying. Neither its name nor one answer in sequence proves it."""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlive.errors import AlreadyExists, NotFound, StoreError
from outlive.objects.interface import ObjectStore

ROUNDS = 5
"""One race shows a server that looks first and writes then in two cases of three; so many leave 1 in 500."""
WRITERS = 8
FOLDER = ".outlive-probe"
"""What is tried is tried below this, and removed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the probe has seen. ``missing``: a line for each thing that the user should be told."""

    create_only: bool
    lists_at_once: bool
    deletes: bool

    @property
    def missing(self) -> tuple[str, ...]:
        lines = []
        if not self.create_only:
            lines.append("it lets several writers create the same object: fencing is best effort")
        if not self.lists_at_once:
            lines.append("its listings lag behind: a newer life or checkpoint may be seen late")
        if not self.deletes:
            lines.append("these credentials may not delete: nothing can be pruned")
        return tuple(lines)


@runtime_checkable
class Assuming(Protocol):
    """A store that can be told what a probe has found."""

    def assume(self, *, create_only: bool) -> None: ...


@runtime_checkable
class Versioned(Protocol):
    """A store that can say whether it keeps what is removed; None where it doesn't tell."""

    def keeps_versions(self) -> bool | None: ...


def probe(store: ObjectStore, *, folder: str = "") -> Capabilities:
    """Try it, tell the store what was found, and leave nothing behind. The store's errors are passed up.

    It is tried in ``folder``, else in one of its own.
    Many writers at once: some servers refuse a second object in sequence but let several win a race.
    """
    if isinstance(store, Assuming):
        store.assume(create_only=True)
    folder = folder or f"{FOLDER}/{secrets.token_hex(8)}"
    keys = [f"{folder}/{number}" for number in range(ROUNDS)]
    deletes = True
    try:
        tried = list(_until_broken(store, keys))
        create_only = all(tried)
        listed = [info.key for info in store.list(f"{folder}/")]
    finally:
        try:
            store.delete(keys)
        except StoreError:
            deletes = False
    if isinstance(store, Assuming):
        store.assume(create_only=create_only)
    return Capabilities(create_only=create_only, lists_at_once=listed == keys[: len(tried)], deletes=deletes)


def _until_broken(store: ObjectStore, keys: Sequence[str]) -> Iterator[bool]:
    for key in keys:
        held = _one_winner(store, key)
        yield held
        if not held:
            return


def _one_winner(store: ObjectStore, key: str) -> bool:
    """Whether the object holds what the only winner wrote. No winner: its answer was lost, no fault."""
    nonces = [secrets.token_hex(16).encode() for _ in range(WRITERS)]
    start = threading.Barrier(WRITERS)
    with ThreadPoolExecutor(WRITERS) as writers:
        try:
            wins = list(writers.map(_writer(store, key, start), nonces))
        except BaseException:
            # No thread to be had, or the process ends: those that came would wait for the rest for ever.
            start.abort()
            raise
    winners = [nonce for nonce, won in zip(nonces, wins, strict=True) if won]
    try:
        held = store.get(key, at_most=64)
    except NotFound:
        return False
    return len(winners) <= 1 and held in (winners or nonces)


def _writer(store: ObjectStore, key: str, start: threading.Barrier) -> Callable[[bytes], bool]:
    def write(nonce: bytes) -> bool:
        start.wait()
        try:
            store.put(key, nonce, create_only=True)
        except AlreadyExists:
            return False
        return True

    return write
