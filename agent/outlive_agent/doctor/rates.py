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
from outlive_agent.doctor.finding import Finding, ok, problem, warning
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


class Measuring:
    """Moves bytes until it knows. ``closing`` ends it between two objects."""

    def __init__(self, store: ObjectStore, scratch: Scratch, closing: threading.Event) -> None:
        self._store = store
        self._scratch = scratch
        self._closing = closing
        self._workers = workers_for(store)
        self._body = memoryview(os.urandom(OBJECT_BYTES))  # random, so that nothing on the way can shrink it
        self._round = 0
        self._began = time.monotonic()
        self._held: tuple[Sequence[str], int] = ((), 0)
        self.sent = 0
        """Of whole rounds."""

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def up(self) -> Rate:
        """Send. ``Cancelled`` if it was told to end."""
        self._began, size = time.monotonic(), FIRST_BYTES
        while True:
            keys, each_bytes = self._keys(size)
            seconds = self._time(keys, each_bytes, up=True)
            self._held = (keys, each_bytes)
            moved = len(keys) * each_bytes
            self.sent += moved
            if seconds >= ROUND_SECONDS or self.spent >= LONGEST_SECONDS:
                break
            following = min(int(size * min(8.0, max(2.0, ROUND_SECONDS / seconds))), MOST_BYTES - self.sent)
            if following <= size:
                break
            size = following
        return self._rate(moved, seconds, all_bytes=self.sent)

    def down(self) -> Rate:
        """Read what the last round sent."""
        keys, each_bytes = self._held
        moved = len(keys) * each_bytes
        return self._rate(moved, self._time(keys, each_bytes, up=False), all_bytes=moved)

    def _rate(self, moved: int, seconds: float, *, all_bytes: int) -> Rate:
        return Rate(
            bytes_per_second=moved / seconds, seconds=seconds, all_bytes=all_bytes, at_once=self._workers
        )

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


def upload(rate: Rate) -> Finding:
    return _finding("upload", rate, "sent")


def download(rate: Rate) -> Finding:
    return _finding("download", rate, "read")


def too_slow(measuring: Measuring) -> Finding:
    """The time is over: that says something about the rate, too."""
    least = bytes_text(FIRST_BYTES if not measuring.sent else measuring.sent)
    took = duration_text(measuring.spent)
    if measuring.sent:
        seen = f"{least} went up, and the next did not arrive within {took}"
    else:
        seen = f"{least} did not arrive within {took}"
    change = "take a bucket that is nearer to the machine, or give it longer: --within 60s"
    return problem("upload", seen, change=change, bytes=measuring.sent)


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
