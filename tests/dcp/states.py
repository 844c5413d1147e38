"""States as training scripts hand them to torch.distributed.checkpoint."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

import outlive.dcp


def trained(steps: int = 2, *, seed: int = 0) -> dict[str, Any]:
    """A model and an optimizer that has stepped, plain values, and dtypes that bytes must not care about."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3])
    for _ in range(steps):
        model(torch.randn(32, 8)).square().mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "train": {"step": steps, "best": float("-inf"), "note": "äö", "sizes": (1, 2), "raw": b"\0\xff"},
        "odd": {
            "half": torch.randn(3, 5).to(torch.bfloat16),
            "wide": torch.randn(6, 4).t(),
            "flags": torch.tensor([True, False]),
            "complex": torch.randn(3, dtype=torch.complex64),
            "nan": torch.tensor([float("nan"), -0.0]),
            "number": torch.tensor(7),
            "empty": torch.empty(0, 3),
        },
    }


def blank(state: Any) -> Any:
    """The same state with nothing in it, to be loaded into."""
    if isinstance(state, torch.Tensor):
        return torch.full_like(state, 0)
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list):
        return [blank(value) for value in state]
    return copy.copy(state) if not isinstance(state, (int, float, str)) else None


def through_torch(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What torch's own checkpoint in a directory gives back."""
    save(state, storage_writer=FileSystemWriter(folder))
    found: dict[str, Any] = blank(state)
    load(found, storage_reader=FileSystemReader(folder))
    return found


def through_outlive(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a store gives back."""
    save(state, storage_writer=outlive.dcp.Writer(str(folder), run="gpt"))
    found: dict[str, Any] = blank(state)
    load(found, storage_reader=outlive.dcp.Reader(str(folder), run="gpt"))
    return found


def same(one: Any, other: Any, at: str = "state") -> None:
    """Both are equal bit for bit, in type and nesting too."""
    assert type(one) is type(other), at
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), at
        assert bits(one) == bits(other), at
    elif isinstance(one, dict):
        assert list(one) == list(other), at
        for key in one:
            same(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), at
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            same(left, right, f"{at}[{i}]")
    else:
        assert one == other, at


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's content, every bit of it."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return bytes(plain.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
