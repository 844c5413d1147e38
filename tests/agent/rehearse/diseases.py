"""A tiny training with one disease of those that keep a resume from being exact, or with none.

    python diseases.py DISEASE

Each is what people write, as small as it can be.
"""

import itertools
import os
import random
import sys
import time
from collections.abc import Iterator

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

import outlive

DISEASE = sys.argv[1]
EPOCHS, ITEMS, BATCH = 6, 16, 4


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Points that are augmented in the worker, from all three global generators."""

    def __init__(self) -> None:
        self.points = torch.from_numpy(numpy.random.randn(ITEMS, 4)).float()
        self.given = {"count": 0}

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = random.random() + float(numpy.random.rand()) + float(torch.rand(()))
        self.given["count"] += 1
        worn = self.given["count"] if DISEASE == "data with a state" else 0
        return self.points[index] + 0.1 * noise + worn, (self.points[index].sum() > 0).long()


class Plain(Noisy):
    """The same points at every epoch."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.points[index], (self.points[index].sum() > 0).long()


class Turning(Sampler[int]):
    """Begins one batch later each time, and counts that where nobody sees it."""

    turns = itertools.count()

    def __iter__(self) -> Iterator[int]:
        begin = BATCH * next(self.turns)
        return iter([(begin + i) % ITEMS for i in range(ITEMS)])


def epochs(run: outlive.Run) -> int:
    return EPOCHS + 1 if DISEASE == "longer" and run.restored_from is not None else EPOCHS


def changed(loss: Tensor, running: float) -> Tensor:
    """What some diseases do to the loss."""
    if DISEASE == "own variable":
        return loss * running
    if DISEASE == "rounding":
        return loss * (1 + 1e-4 * int.from_bytes(os.urandom(2), "big") / 65536)
    if DISEASE == "clock":
        return loss * (1 + time.time() % 1)
    return loss


def main() -> None:
    if DISEASE != "unseeded data":
        torch.manual_seed(1)
        random.seed(1)
        numpy.random.seed(1)
    data = Plain() if DISEASE in {"own order", "unseeded data"} else Noisy()
    workers = 2 if DISEASE == "none" else 0
    sampler = Turning() if DISEASE == "own order" else None
    loader = DataLoader(data, BATCH, shuffle=sampler is None, sampler=sampler, num_workers=workers)
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 2))
    head = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    other = torch.optim.SGD(head.parameters(), 0.1)
    noise = torch.Generator().manual_seed(3)
    running = 1.0
    with outlive.attach(model=model, optimizer=optimizer, seen=0) as run:
        if DISEASE == "state set again":
            run.state.seen = 0
        if DISEASE == "other threads" and run.restored_from:
            torch.set_num_threads(2)
        for _ in run.epochs(epochs(run)):
            for points, labels in loader if DISEASE == "own loop" else run.batches(loader):
                if DISEASE == "own generator":
                    points = points + torch.randn(points.shape, generator=noise)
                scores = model(points)
                if DISEASE == "forgotten object":
                    scores = head(scores)
                loss = nn.functional.cross_entropy(scores, labels)
                running = 0.9 * running + 0.1 * loss.item() if DISEASE == "own variable" else running
                loss = changed(loss, running)
                optimizer.zero_grad()
                other.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                other.step()
                run.state.seen += len(points)
                run.step(loss=loss)
                if DISEASE == "late draw":
                    torch.rand(())
                if DISEASE == "late forward":
                    model[:2](points)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
