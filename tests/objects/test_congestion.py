"""Going slower when a store says that it is too much, and faster again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from outlive.errors import Throttled
from outlive.objects.congestion import Congestion
from outlive.objects.interface import Body, Limits
from outlive.objects.memory import MemoryStore
from outlive.objects.retry import Backoff, Retrying

MOST, ROOM, OBJECTS = 16, 3, 64


class Narrow(MemoryStore):
    """Refuses whatever comes while ``ROOM`` puts are under way; each lasts until others had their chance."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        self.running = 0
        self._lock = threading.Lock()

    @property
    def limits(self) -> Limits:
        return replace(super().limits, concurrency=MOST)

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        with self._lock:
            if self.running >= ROOM:
                self.refusals += 1
                raise Throttled("slow down")
            self.running += 1
        threading.Event().wait(0.002)
        super().put(key, body, create_only=create_only)
        with self._lock:
            self.running -= 1


def test_a_refusal_halves_and_successes_add_one() -> None:
    """Half as many run after a refusal, whoever else was refused with it; one more a round of successes."""
    now = [0.0]
    congestion = Congestion(MOST, clock=lambda: now[0])
    for _ in range(MOST):
        congestion.refused()
    assert congestion.allowed == MOST // 2
    now[0] += 2.0
    congestion.refused()
    assert congestion.allowed == MOST // 4
    for _ in range(MOST // 4 + MOST // 4 + 1):
        congestion.succeeded()
    assert congestion.allowed == MOST // 4 + 2
    for _ in range(1000):
        congestion.succeeded()
    assert congestion.allowed == MOST


def test_one_always_runs() -> None:
    """However often the store refuses, a transfer at a time is tried."""
    now = [0.0]
    congestion = Congestion(MOST, clock=lambda: now[0])
    for _ in range(20):
        now[0] += 2.0
        congestion.refused()
    with congestion.slot():
        assert congestion.allowed == 1


def test_all_arrives_in_a_narrow_store() -> None:
    """Everything gets through a store that takes three at a time, and fewer are tried at once after that."""
    narrow = Narrow()
    store = Retrying(narrow, backoff=Backoff(first_seconds=0.001, most_seconds=0.01))
    with ThreadPoolExecutor(MOST) as pool:
        list(pool.map(lambda number: store.put(f"k/{number}", b"x"), range(OBJECTS)))
    assert len(list(narrow.list("k/"))) == OBJECTS
    assert narrow.refusals
    assert store.transfers_allowed < MOST
