"""With worker processes a loop gives what it gives without, and its workers are no danger to the end."""

import contextlib
import multiprocessing
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from subprocess import PIPE, Popen
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, get_worker_info

from train.loop_kinds import Counting, Lazy, OwnLoader, OwnNoise, noisy_collate
from train.loop_lives import Life, Noisy, Script, check, unbroken

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def script(make: Callable[[int], DataLoader[Any]]) -> Script:
    """Two epochs over a loader with as many workers as the life has."""

    def run(life: Life) -> None:
        loader = make(life.workers)
        for epoch in life.epochs(2):
            for batch in life.batches(loader):
                life.step(epoch, batch)

    return run


def shuffled(workers: int) -> DataLoader[Tensor]:
    """The ordinary loader."""
    return DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


def persistent(workers: int) -> DataLoader[Tensor]:
    """Its workers live on from epoch to epoch, where it has any."""
    return DataLoader(
        Noisy(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )


def busy(workers: int) -> DataLoader[Tensor]:
    """Own generators, a collate function that draws, a sampler that counts, more fetched ahead."""
    data = OwnNoise()
    more: dict[str, Any] = {"prefetch_factor": 3} if workers else {}
    return DataLoader(
        data, batch_size=2, sampler=Counting(data), collate_fn=noisy_collate, num_workers=workers, **more
    )


def lazy(workers: int) -> DataLoader[Tensor]:
    """Its order is drawn as it goes, and it has a generator that is drawn from as it goes."""
    data = Noisy()
    rng = torch.Generator().manual_seed(2)
    if workers % 2:
        return DataLoader(data, batch_size=3, sampler=Lazy(data, 7), num_workers=workers)
    return DataLoader(
        data, batch_size=16, sampler=RandomSampler(data, True, 64, generator=rng), num_workers=workers
    )


@pytest.mark.parametrize(
    ("make", "workers", "later"),
    [
        (shuffled, 2, 2),
        (shuffled, 2, 0),
        (shuffled, 0, 3),
        (persistent, 2, 2),
        (persistent, 4, 1),
        (busy, 2, 0),
        (busy, 0, 2),
        (lazy, 1, 3),
        (lazy, 2, 0),
    ],
)
def test_workers_change_nothing(make: Callable[[int], DataLoader[Any]], workers: int, later: int) -> None:
    """Whatever the number of workers before and after the break: the same batches and random numbers."""
    whole = check(script(make), workers=workers, later=later, places=(0, 1, 3, 4))
    if workers:
        assert unbroken(script(make), workers=later).lines == whole.lines


def test_spawned_workers_change_nothing() -> None:
    """Everything that goes to a worker can be sent to one that shares no memory."""

    def make(workers: int) -> DataLoader[Any]:
        context = "spawn" if workers else None
        return DataLoader(
            Noisy(), batch_size=5, shuffle=True, num_workers=workers, multiprocessing_context=context
        )

    def run(life: Life) -> None:
        for batch in life.batches(make(life.workers)):
            life.step(batch)

    assert unbroken(run, workers=1).lines == unbroken(run).lines


def test_a_generator_is_left_where_the_batches_end() -> None:
    """A loop left by break leaves its generator after the batches it gave, not after those fetched ahead."""

    def run(life: Life) -> None:
        data = Noisy()
        rng = torch.Generator().manual_seed(2)
        sampler = RandomSampler(data, True, 320, generator=rng)
        loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=life.workers)
        for _ in life.epochs(2):
            for count, batch in enumerate(life.batches(loader)):
                life.note(batch)
                if count == 1:
                    break

    assert unbroken(run, workers=2).lines == unbroken(run).lines


class Shared(IterableDataset[Tensor]):
    """Shares out its items among the workers, and draws."""

    def __iter__(self) -> Iterator[Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for item in range(first, 9, step):
            drawn = [item, random.random(), numpy.random.standard_normal(), torch.rand(()).item()]
            yield torch.tensor(drawn, dtype=torch.float64)


@pytest.mark.parametrize("stay", [False, True])
def test_an_iterable_data_set_goes_on_with_as_many_workers(stay: bool) -> None:
    """It is read again to its place, with the same random numbers, whether its workers persist or not."""

    def make(workers: int) -> DataLoader[Tensor]:
        return DataLoader(Shared(), batch_size=2, num_workers=workers, persistent_workers=stay)

    check(script(make), workers=2, places=(0, 2, 6))


@pytest.mark.parametrize("stay", [False, True])
def test_workers_of_an_iterable_data_set_draw_anew_in_each_loop(stay: bool) -> None:
    """No two items of two epochs get the same random numbers."""
    seen: list[float] = []

    def run(life: Life) -> None:
        loader = DataLoader(Shared(), batch_size=None, num_workers=2, persistent_workers=stay)
        for _ in life.epochs(2):
            seen.extend(item[1].item() for item in life.batches(loader))

    unbroken(run)
    assert len(set(seen)) == 18


def test_one_loader_serves_two_loops_at_once() -> None:
    """Also if its workers persist, which torch itself does not allow."""

    def run(life: Life) -> None:
        loader = persistent(life.workers)
        for one, other in zip(life.batches(loader), life.batches(loader), strict=True):
            life.step(one, other)

    assert unbroken(run, workers=1).lines == unbroken(run).lines


class Seeds(Noisy):
    """Says what its worker was seeded with."""

    def __getitem__(self, index: int) -> Tensor:
        info = get_worker_info()
        assert info is not None
        return torch.tensor(info.seed)


def test_a_workers_own_seed_is_the_loops() -> None:
    """What a worker_init_fn makes of it is the same in the next life, and another in the next epoch."""
    seeds: list[float] = []

    def run(life: Life) -> None:
        loader = DataLoader(Seeds(), batch_size=5, num_workers=1)
        for _ in life.epochs(2):
            for batch in life.batches(loader):
                seeds.append(batch[0].item())
                life.step(batch)

    check(run, places=(0, 1))
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


class Witness(Noisy):
    """Says what it sees in its worker."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.greeted = -1

    def __getitem__(self, index: int) -> Tensor:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        ignored = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
        assert ignored == [signal.SIG_IGN] * 3
        assert signal.set_wakeup_fd(-1) == -1
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        return torch.tensor([info.id, self.greeted])


def greet(worker: int) -> None:
    """The user's own worker_init_fn, which finds its data set where the documentation says."""
    info = get_worker_info()
    assert info is not None
    info.dataset.greeted = worker  # type: ignore[attr-defined]


def test_a_worker_looks_as_ever() -> None:
    """User code finds its data set and its worker_init_fn at work; the signals of the trainer are ignored."""

    def run(life: Life) -> None:
        loader = DataLoader(Witness(4), batch_size=1, num_workers=2, worker_init_fn=greet)
        for batch in life.batches(loader):
            life.note(batch)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        before = signal.set_wakeup_fd(ours.fileno())
        try:
            assert unbroken(run).lines == ["[[[0, 0]]]", "[[[1, 1]]]"] * 2
        finally:
            signal.set_wakeup_fd(before)


def test_close_ends_all_workers() -> None:
    """At once, also those that persist or are at work; no error reaches this process; loops work after."""
    life = Life()
    middle = life.batches(persistent(2))
    next(middle)
    other = life.batches(shuffled(1))
    next(other)
    assert len(multiprocessing.active_children()) == 3
    life.loops.close()
    assert multiprocessing.active_children() == []
    del middle, other
    assert len(list(life.batches(persistent(2)))) == 3
    life.loops.close()
    assert multiprocessing.active_children() == []


def test_a_loop_that_is_left_leaves_no_worker() -> None:
    """By break, or because its data set raised an error."""
    life = Life()
    for _ in life.batches(shuffled(2)):
        break
    assert multiprocessing.active_children() == []

    def fail(worker: int) -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        next(life.batches(DataLoader(Noisy(), num_workers=1, worker_init_fn=fail)))
    assert multiprocessing.active_children() == []


TRAINING = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from outlive.train.loops import Loops

class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index > 3: time.sleep(600)
        return index

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
loops = Loops(on_continue=lambda: None, on_boundary=lambda: None, say=print)
loader = DataLoader(Slow(), batch_size=2, num_workers=2, persistent_workers={persistent})
for count, batch in enumerate(loops.batches(loader)):
    if count == 0:
        print(*(child.pid for child in __import__("multiprocessing").active_children()), flush=True)
        while not asked:
            signal.sigtimedwait([], 0.01)
        signal.sigtimedwait([], 0.5)   # time for a worker to die, if it were to
    if count == 1:
        {close}
        sys.exit(75)
"""


def training(*, persistent: bool, close: bool) -> "Popen[str]":
    """A trainer in a group of its own, whose workers are stuck in a read."""
    text = TRAINING.replace("{persistent}", str(persistent)).replace(
        "{close}", "loops.close()" if close else "pass"
    )
    return Popen([sys.executable, "-c", text], stdout=PIPE, stderr=PIPE, text=True, start_new_session=True)


def wait_gone(pids: list[int]) -> None:
    """Until they are."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            watch = os.pidfd_open(pid)
            assert select.select([watch], [], [], 30)[0], "a worker outlived its trainer"
            os.close(watch)


@pytest.mark.parametrize(("persistent", "close"), [(False, True), (True, True), (True, False)])
def test_a_signal_to_the_whole_group_ends_in_order(persistent: bool, close: bool) -> None:
    """The trainer reaches its boundary and leaves with its own exit code, though its workers are stuck."""
    with training(persistent=persistent, close=close) as trainer:
        assert trainer.stdout is not None
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        os.killpg(trainer.pid, signal.SIGTERM)
        _, errors = trainer.communicate(timeout=60)
    assert (trainer.returncode, errors, len(pids)) == (75, "", 2)
    wait_gone(pids)


def test_workers_never_outlive_a_killed_trainer() -> None:
    """They end with it, though they are stuck in a read and ignore signals."""
    with training(persistent=True, close=True) as trainer:
        assert trainer.stdout is not None
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        trainer.kill()
    assert len(pids) == 2
    wait_gone(pids)


def test_no_worker_is_hit_before_it_is_shielded() -> None:
    """A signal to the group while workers start is kept from them: blocked when they are forked."""
    life = Life()
    blocked: set[int] = set()

    class Context(type(multiprocessing.get_context("fork"))):  # type: ignore[misc]
        def Process(self, *arguments: Any, **more: Any) -> Any:
            blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            return multiprocessing.get_context("fork").Process(*arguments, **more)

    next(life.batches(DataLoader(Noisy(), num_workers=1, multiprocessing_context=Context())))
    life.loops.close()
    assert blocked >= {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


@pytest.mark.parametrize("kind", [DataLoader, OwnLoader])
def test_workers_survive_a_signal_of_their_own(kind: type[DataLoader[Any]]) -> None:
    """Also those of a loader that starts them in its own way; and they are ended with the rest."""
    life = Life()
    batches = life.batches(kind(Noisy(40), batch_size=2, num_workers=2))
    next(batches)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGTERM)
    assert len([next(batches) for _ in range(15)]) == 15
    life.loops.close()
    assert multiprocessing.active_children() == []
