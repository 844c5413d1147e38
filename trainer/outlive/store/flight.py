"""Many transfers in flight: the first error wins, the others stop soon, and nothing is left running."""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from outlive.errors import Cancelled
from outlive.objects.interface import ObjectStore

Item = TypeVar("Item")
Cancel = Callable[[], bool]

_FEWEST: Final = 2
_MOST: Final = 16


def workers_for(store: ObjectStore, *, most: int = _MOST) -> int:
    """How many requests at once are worth having with this store."""
    return max(_FEWEST, min(store.limits.concurrency, most))


def each(
    items: Collection[Item], work: Callable[[Item], None], *, workers: int, cancelled: Cancel | None = None
) -> None:
    """Do ``work`` on every item, ``workers`` at once; return when all is done.

    The first error is raised as it is, after the work that is under way has ended; no more is begun.
    ``Cancelled`` if ``cancelled()`` turns true between two items.
    """
    errors: list[BaseException] = []
    stop = threading.Event()
    remaining = iter(items)
    lock = threading.Lock()

    def fly() -> None:
        try:
            while not stop.is_set():
                _check(cancelled)
                with lock:
                    try:
                        item = next(remaining)
                    except StopIteration:
                        return
                work(item)
        except BaseException as error:  # whatever it is, the caller gets it, not the thread
            errors.append(error)
            stop.set()

    flying = max(1, min(workers, len(items)))
    with ThreadPoolExecutor(max_workers=flying, thread_name_prefix="outlive-flight") as pool:
        try:
            for future in _started(pool, fly, flying):
                future.result()
        finally:
            stop.set()  # also when the wait itself was interrupted: leaving the pool waits for the workers
    if errors:
        raise errors[0]


def _started(pool: ThreadPoolExecutor, fly: Callable[[], None], most: int) -> list[Future[None]]:
    """As many as the machine gives us threads for: one alone does all the work, too."""
    flights: list[Future[None]] = []
    for _ in range(most):
        try:
            flights.append(pool.submit(fly))
        except RuntimeError:
            if not flights:
                raise
            break
    return flights


def _check(cancelled: Cancel | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("stopped before everything was transferred, as asked")


class Tally:
    """Counts bytes from many threads, and tells a listener."""

    def __init__(self, total: int, tell: Callable[[int, int, int], None] | None = None) -> None:
        self._total = total
        self._tell = tell
        self._lock = threading.Lock()
        self.done = 0
        self.sent = 0

    def add(self, done: int, *, sent: int = 0) -> None:
        with self._lock:
            self.done += done
            self.sent += sent
            if self._tell is not None:
                self._tell(self.done, self._total, self.sent)
