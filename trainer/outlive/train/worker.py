"""Data workers draw what their batch says, outlast signals meant for the trainer, and never outlive it."""

import atexit
import contextlib
import ctypes
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from numpy.random import MT19937
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from outlive.train import generators
from outlive.train.randomness import mix, seed_globals

SHIELDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_PR_SET_PDEATHSIG = 1
_KILL_SECONDS = 5.0


class SeededDataset(Dataset[Any]):
    """The user's data set, asked for (seed, index): what it draws belongs to the batch, not to the process.

    So the numbers are the same whichever worker gets the batch, however many there are, or none. Besides the
    global generators this holds for those that the data set and the collate function keep as objects.
    """

    def __init__(self, dataset: Any, collate: object) -> None:
        self.dataset = dataset
        self._collate = collate
        self._bits: MT19937 | None = None
        self._own: list[Any] | None = None

    def own(self) -> list[Any]:
        """The generators kept as objects. Looked for at the first batch, after the user's worker_init_fn."""
        if self._own is None:
            self._own = generators.find((self.dataset, self._collate))
        return self._own

    def __getitem__(self, numbered: Any) -> Any:
        seed, index = numbered
        self._seed(seed)
        return self.dataset[index]

    def __getitems__(self, numbered: Any) -> Any:
        seed, indices = numbered
        self._seed(seed)
        many = getattr(self.dataset, "__getitems__", None)
        return many(indices) if many else [self.dataset[index] for index in indices]

    def _seed(self, seed: int) -> None:
        if self._bits is None:
            self._bits = MT19937(0)
        seed_globals(seed, self._bits)
        for number, generator in enumerate(self.own()):
            generators.reseed(generator, mix(seed, number))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_own": None, "_bits": None}


class SeededStream(IterableDataset[Any]):
    """The user's iterable data set. Each worker's random numbers begin anew with each loop.

    Generators that the data set keeps as objects are not touched: workers and ranks may share out one order
    that all of them draw alike.
    """

    def __init__(self, dataset: Iterable[Any]) -> None:
        self.dataset = dataset
        self.ended = False
        """Whether it has given its last item in this process; its own state may say something else then."""
        self.seed = multiprocessing.RawValue("Q", 0)  # shared, since persistent workers hold a copy of this

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None:
            seed_globals(mix(self.seed.value, f"worker {info.id}"), MT19937(0))
        self.ended = False
        yield from self.dataset
        self.ended = True


class Shield:
    """The worker_init_fn: ignores the signals that mean the trainer, then does what the user's does."""

    def __init__(self, user: Callable[[int], object] | None) -> None:
        self._user = user
        # The kernel's death signal comes when the thread that forked ends, not when the process does.
        self._die_with_parent = threading.current_thread() is threading.main_thread()

    def __call__(self, worker_id: int) -> None:
        for number in SHIELDED:
            signal.signal(number, signal.SIG_IGN)
        # A forked worker holds the trainer's wake-up descriptor and would report its own signals there.
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SHIELDED)
        if self._die_with_parent:
            _die_with_parent()
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, (SeededDataset, SeededStream)):
            # User code asks for its own data set here. The record is frozen, against mistakes.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._user is not None:
            self._user(worker_id)


class Workers:
    """The worker processes behind the iterators opened here. `close` ends all of them at once."""

    def __init__(self) -> None:
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._strays: set[Any] = set()
        self._pid = os.getpid()
        _OPEN.add(self)

    def open(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`, during which no signal can reach a worker before it is shielded."""
        with self.starting(loader):
            iterator: Iterator[Any] = iter(loader)
        if hasattr(iterator, "_workers"):
            self._iterators.add(iterator)
            self._strays.difference_update(iterator._workers)
        return iterator

    @contextlib.contextmanager
    def starting(self, loader: Any) -> Iterator[None]:
        """Around whatever may start a loader's workers, if that is not `iter` alone."""
        if not getattr(loader, "num_workers", 0):
            yield
            return
        before = set(multiprocessing.active_children())
        try:
            with _signals_deferred(getattr(loader, "multiprocessing_context", None)):
                yield
        finally:
            now = set(multiprocessing.active_children())
            self._strays = (self._strays & now) | (now - before)

    def end(self, iterator: Any) -> None:
        """End the workers of one iterator as torch does when it is collected, which an error can put off."""
        if hasattr(iterator, "_workers"):
            iterator._shutdown_workers()
            for process in iterator._workers:
                if process.is_alive():  # torch's last resort is SIGTERM, which they ignore
                    process.kill()

    def close(self) -> None:
        """Kill them. Asking them to leave takes seconds each, and they hold nothing that anyone needs."""
        if os.getpid() == self._pid:  # a forked child must not kill the workers of its parent
            for iterator in list(self._iterators):
                _kill(iterator)
            with _deaf_to_children():
                _kill_all(self._strays)
        self._iterators.clear()
        self._strays.clear()


_OPEN: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # multiprocessing would send SIGTERM, which these ignore, and wait for them without end.
    for workers in list(_OPEN):
        workers.close()


def _kill(iterator: Any) -> None:
    # Otherwise torch's SIGCHLD handler raises in the main thread, wherever that is, that a worker was killed.
    if getattr(iterator, "_worker_pids_set", False):
        torch._C._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    # Otherwise its destructor sets an event whose lock may have died with a worker, and hangs.
    iterator._shutdown = True
    pinning = getattr(iterator, "_pin_memory_thread_done_event", None)
    if pinning is not None:
        pinning.set()
    _kill_all(iterator._workers)


def _kill_all(processes: Iterable[Any]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join(_KILL_SECONDS)


@contextlib.contextmanager
def _deaf_to_children() -> Iterator[None]:
    """Nobody hears of a child's death: torch knows these under an iterator that is out of reach."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


@contextlib.contextmanager
def _signals_deferred(context: Any) -> Iterator[None]:
    method = (context or multiprocessing).get_start_method()
    if method != "fork":
        # Its start unblocks signals. Afterwards it is running and leaves them alone.
        multiprocessing.resource_tracker.ensure_running()
    if method == "forkserver":
        # Under the mask it would hand blocked signals to every process that the user starts through it.
        multiprocessing.forkserver.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)
