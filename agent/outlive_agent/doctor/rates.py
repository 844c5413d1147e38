"""How fast bytes go to the store and come back: measured as the agent moves them, many objects at once.

At most 256 MB each way and about five seconds: rounds that grow until one lasts long enough to be believed.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outlive.errors import Cancelled
from outlive.objects.interface import ObjectStore
from outlive.store.flight import each, workers_for
from outlive_agent.doctor.finding import Finding, ok, warning
from outlive_agent.doctor.scratch import Scratch
from outlive_agent.units import bytes_text, duration_text

MOST_BYTES: Final = 256 * 1024 * 1024
"""What is sent in all."""
FIRST_BYTES: Final = 1024 * 1024
OBJECT_BYTES: Final = 8 * 1024 * 1024
ROUND_SECONDS: Final = 1.5
"""A round this long is believed."""
LONGEST_SECONDS: Final = 5.0
SLOW: Final = 1e6
"""Bytes a second below which hardly any training's state is saved in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The last round, which is the longest. ``all_bytes``: of every round."""

    bytes_per_second: float
    seconds: float
    all_bytes: int
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    up: Rate
    down: Rate


class Measuring:
    """Moves bytes until it knows. ``closing`` ends it between two objects."""

    def __init__(self, store: ObjectStore, scratch: Scratch, closing: threading.Event) -> None:
        self._store = store
        self._scratch = scratch
        self._closing = closing
        self._workers = workers_for(store)
        self._body = memoryview(os.urandom(OBJECT_BYTES))  # random, so that nothing on the way can shrink it
        self._round = 0

    def run(self) -> Rates:
        """Both ways. ``Cancelled`` if it was told to end."""
        began, sent, size = time.monotonic(), 0, FIRST_BYTES
        while True:
            keys, each_bytes = self._keys(size)
            seconds = self._time(keys, each_bytes, up=True)
            sent += len(keys) * each_bytes
            rate = len(keys) * each_bytes / seconds
            if seconds >= ROUND_SECONDS or time.monotonic() - began >= LONGEST_SECONDS:
                break
            following = min(int(size * min(8.0, max(2.0, ROUND_SECONDS / seconds))), MOST_BYTES - sent)
            if following <= size:
                break
            size = following
        up = Rate(bytes_per_second=rate, seconds=seconds, all_bytes=sent, at_once=self._workers)
        return Rates(up=up, down=self._down(keys, each_bytes))

    def _down(self, keys: Sequence[str], each_bytes: int) -> Rate:
        seconds = self._time(keys, each_bytes, up=False)
        moved = len(keys) * each_bytes
        return Rate(bytes_per_second=moved / seconds, seconds=seconds, all_bytes=moved, at_once=self._workers)

    def _keys(self, size: int) -> tuple[list[str], int]:
        self._round += 1
        each_bytes = min(OBJECT_BYTES, max(1, size // self._workers))
        count = max(self._workers, size // each_bytes)
        return [self._scratch.key(f"rate/{self._round}-{number}") for number in range(count)], each_bytes

    def _time(self, keys: Sequence[str], each_bytes: int, *, up: bool) -> float:
        own = threading.local()

        def move(key: str) -> None:
            if up:
                self._store.put(key, self._body[:each_bytes])
                return
            if not hasattr(own, "buffer"):
                own.buffer = bytearray(each_bytes)
            self._store.read_into(key, memoryview(own.buffer))

        began = time.monotonic()
        each(keys, move, workers=self._workers, cancelled=self._closing.is_set)
        if self._closing.is_set():
            raise Cancelled("the rate was not measured to its end")
        return max(time.monotonic() - began, 1e-6)


def upload(rates: Rates) -> Finding:
    return _finding("upload", rates.up, "sent")


def download(rates: Rates) -> Finding:
    return _finding("download", rates.down, "read")


def rate_text(bytes_per_second: float) -> str:
    return f"{bytes_text(int(bytes_per_second))}/s"


def _finding(check: str, rate: Rate, verb: str) -> Finding:
    amount, took = bytes_text(rate.all_bytes), duration_text(rate.seconds)
    seen = f"{rate_text(rate.bytes_per_second)} ({amount} {verb}, {rate.at_once} at once, {took})"
    figures = {"bytes_per_second": int(rate.bytes_per_second), "bytes": rate.all_bytes}
    if rate.bytes_per_second < SLOW:
        change = "take a bucket that is nearer to the machine, or a machine with a faster network"
        return warning(check, seen, change=change, **figures)
    return ok(check, seen, **figures)
