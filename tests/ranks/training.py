"""A small training of several ranks: DDP, or sharded in one of the ways that torch has.

The last line of each rank says where it ended: ``END {"rank", "steps", "seen", "chance", "state"}``, with a
digest of all parameters and moments put together over the ranks.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import outlive

SAMPLES = 320


def build(way: str, width: int) -> nn.Module:
    """The model, sharded in this way."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 7))
    world = dist.get_world_size()
    if way == "plain":
        return model
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fsdp":
        mesh = init_device_mesh("cpu", (world,))
    elif way == "hsdp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    elif way == "tensor":
        mesh = init_device_mesh("cpu", (world,))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
    else:
        both = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, both["tensor"], {"0": ColwiseParallel(), "3": RowwiseParallel()})
        mesh = both["data"]
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(value: Any) -> Any:
    """The full tensor of a shard."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of everything that the ranks hold together."""
    found = hashlib.blake2b(digest_size=12)
    for parameter in model.parameters():
        values = [parameter.detach(), *optimizer.state[parameter].values()]
        for value in map(whole, values):
            if isinstance(value, Tensor):
                found.update(value.contiguous().numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--way", default="ddp")
    arguments.add_argument("--epochs", type=int, default=4)
    arguments.add_argument("--width", type=int, default=30, help="of the hidden layer")
    arguments.add_argument("--workers", type=int, default=0, help="that load the data of each rank")
    arguments.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    arguments.add_argument("--look", action="store_true", help="say what was restored, and end")
    arguments.add_argument("--hurry", type=Path, help="the end is not reached until this file is there")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(options.way, options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(SAMPLES, 12, generator=torch.Generator().manual_seed(1)))
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=world, rank=rank, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=options.workers)
    torch.manual_seed(100 + rank)
    with outlive.attach(model=model, optimizer=optimizer, seen=0) as run:
        if options.look:
            end = {"rank": rank, "steps": run.steps, "state": digest(model, optimizer)}
            print(f"END {json.dumps(end)}", flush=True)
            run.drop()
            dist.destroy_process_group()
            return
        for epoch in run.epochs(options.epochs):
            sampler.set_epoch(epoch)
            for (samples,) in run.batches(loader):
                loss = (model(samples) + 0.01 * torch.rand(())).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.state.seen += len(samples)
                run.step(loss=loss)
                if options.hurry is None or not options.hurry.exists():
                    left = options.epochs * len(loader) - run.steps if options.hurry else 1
                    time.sleep(options.pause if left > 5 or options.hurry is None else 0.2)
    end = {
        "rank": rank,
        "steps": run.steps,
        "seen": run.state.seen,
        "chance": float(torch.rand(())),
        "state": digest(model, optimizer),
    }
    print(f"END {json.dumps(end)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
