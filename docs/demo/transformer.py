"""A character-level transformer on the source of Python's standard library.

Nothing here knows about reclaims. ``--log`` gets one line a step, so that the demo can compare every loss.
"""

import argparse
import random
from pathlib import Path

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import outlive

ALPHABET = 128
CONTEXT = 96
BATCH = 16
BATCHES_PER_EPOCH = 120


class Windows(Dataset[Tensor]):
    """Windows of ``CONTEXT + 1`` characters, each begun a random few late: augmentation in the worker."""

    def __init__(self, text: bytes) -> None:
        self.codes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.stride = (len(self.codes) - 2 * CONTEXT) // (BATCH * BATCHES_PER_EPOCH)

    def __len__(self) -> int:
        return BATCH * BATCHES_PER_EPOCH

    def __getitem__(self, index: int) -> Tensor:
        start = index * self.stride + int(torch.randint(CONTEXT, ()))
        return self.codes[start : start + CONTEXT + 1].long()


class Transformer(nn.Module):
    def __init__(self, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.characters = nn.Embedding(ALPHABET, width)
        self.positions = nn.Embedding(CONTEXT, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, ALPHABET)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, codes: Tensor) -> Tensor:
        positions = torch.arange(codes.shape[1], device=codes.device)
        hidden = self.characters(codes) + self.positions(positions)
        logits: Tensor = self.head(self.blocks(hidden, mask=self.mask, is_causal=True))
        return logits


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--text", type=Path, required=True)
    arguments.add_argument("--log", type=Path, required=True)
    arguments.add_argument("--epochs", type=int, default=3)
    options = arguments.parse_args()

    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    windows = Windows(options.text.read_bytes())
    loader = DataLoader(windows, BATCH, shuffle=True, num_workers=1)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = options.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)

    with (
        options.log.open("a", buffering=1) as log,
        options.log.with_suffix(".stalls").open("a", buffering=1) as stalls,
        outlive.attach(model=model, optimizer=optimizer, scheduler=scheduler, best=float("inf")) as run,
    ):
        stall = 0.0
        for _ in run.epochs(options.epochs):
            for batch in run.batches(loader):
                logits = model(batch[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                scheduler.step()
                run.state.best = min(run.state.best, loss.item())
                log.write(f"{run.steps + 1} {float(loss.detach()).hex()}\n")
                run.step(loss=loss)
                if run.stall_seconds != stall:
                    stall = run.stall_seconds
                    stalls.write(f"{stall}\n")


if __name__ == "__main__":
    main()
