"""Learns to tell the sums of random numbers apart. An ordinary training loop of 60 lines."""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import outlive


def make_data() -> TensorDataset:
    source = torch.Generator().manual_seed(0)
    points = torch.randn(512, 16, generator=source)
    return TensorDataset(points, (points.sum(dim=1) > 0).long())


def make_model() -> nn.Module:
    hidden = [nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*hidden, nn.Linear(64, 2))


def accuracy(model: nn.Module, points: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right: float = (model(points).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--log", type=Path, default=Path("losses.txt"))
    options = parser.parse_args()

    torch.manual_seed(0)
    data = make_data()
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = options.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    criterion = nn.CrossEntropyLoss()
    with options.log.open("a") as log, outlive.attach(net=model, adam=optimizer, lr=scheduler) as run:
        for epoch in run.epochs(options.epochs):
            for points, labels in run.batches(loader):
                loss = criterion(model(points), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                print(loss.item().hex(), file=log, flush=True)
                run.step(loss=loss)
            print(f"epoch {epoch}: accuracy {accuracy(model, *data.tensors):.3f}")


if __name__ == "__main__":
    main()
