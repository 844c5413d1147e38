"""A small training with all that is easy to lose: dropout, BatchNorm, shuffling workers, a schedule."""

import argparse
import random
import time
from pathlib import Path

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import outlive


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """64 samples, each augmented from three random generators inside the worker."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = random.random() + float(numpy.random.rand()) + float(torch.rand(()))  # noqa: S311
        return torch.full((8,), index / 64 + 0.01 * noise), torch.tensor(index % 2)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, required=True)
    arguments.add_argument("--workers", type=int, default=0)
    arguments.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    arguments.add_argument("--hurry", type=Path, help="the end is not reached until this file is there")
    options = arguments.parse_args()
    random.seed(7)
    numpy.random.seed(7)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 24, 0.9)
    loader = DataLoader(Noisy(), 8, shuffle=True, num_workers=options.workers)
    with outlive.attach(model=model, optimizer=optimizer, scheduler=scheduler, seen=0, losses=[]) as run:
        for _ in run.epochs(options.epochs):
            for samples, labels in run.batches(loader):
                loss = nn.functional.cross_entropy(model(samples), labels)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                scheduler.step()
                run.state.seen += len(samples)
                run.state.losses.append(loss.item())
                run.step(loss=loss)
                if options.hurry is None:
                    time.sleep(options.pause)
                elif not options.hurry.exists():
                    # Ever slower: boundaries go on, and whoever needs a training that runs finds one.
                    steps = options.epochs * len(loader)
                    time.sleep(options.pause * steps / max(1, steps - run.steps))


if __name__ == "__main__":
    main()
