"""A sharded training under ``attach``, from a model that was imported: ``torchrun attached.py``."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import outlive


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(77)
    model = nn.Sequential(nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with outlive.attach(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(1):
            for batch in run.batches([torch.ones(4, 10), torch.zeros(4, 10)]):
                model(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step()


if __name__ == "__main__":
    main()
