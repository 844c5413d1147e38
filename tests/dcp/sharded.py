"""What each rank does: ``torchrun sharded.py save|load FOLDER``. Says what it found, one JSON line a rank."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import outlive.dcp
from dcp.states import bits


class Training:
    """A sharded model whose dimensions no number of ranks divides, and its optimizer."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = nn.Sequential(nn.Linear(10, 7), nn.Linear(7, 33), nn.Linear(33, 3))
        for layer in self.model:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model(torch.randn(8, 10)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self, step: int) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "train": {"step": step}}

    def digest(self, state: dict[str, Any]) -> str:
        """Of all tensors, whole, once they are back in model and optimizer."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        kept = hashlib.sha256()
        now = self.state(0)
        for tree in (now["model"], *now["optimizer"]["state"].values()):
            for name, tensor in tree.items():
                whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                kept.update(name.encode() + bits(whole))
        return kept.hexdigest()


def saved(folder: Path) -> dict[str, Any]:
    """Two checkpoints of the same run, the second one asynchronously; torch's own beside the first."""
    training = Training(seed=0)
    training.step(1)
    state = training.state(1)
    save(state, storage_writer=FileSystemWriter(folder / "torch"))
    writer = outlive.dcp.Writer(str(folder / "store"), run="gpt")
    save(state, storage_writer=writer, checkpoint_id="step-1")
    digest = training.digest(state)
    training.step(2)
    state = training.state(2)
    pending = cast(Any, async_save(state, storage_writer=writer, checkpoint_id="step-2"))
    pending.result()
    return {"1": digest, "2": training.digest(state)}


def loaded(folder: Path) -> dict[str, Any]:
    """What torch's own and the store's checkpoint of step 1, and the newest whole one, give other ranks."""
    found: dict[str, Any] = {}
    theirs = Training(seed=10)
    theirs.step(0)
    state = theirs.state(0)
    load(state, storage_reader=FileSystemReader(folder / "torch"))
    found["torch"] = theirs.digest(state)
    for name, options in (("1", {"checkpoint_id": "step-1"}), ("newest", {})):
        training = Training(seed=11)
        training.step(0)
        state = training.state(0)
        reader = outlive.dcp.Reader(str(folder / "store"), run="gpt")
        checkpoint = outlive.dcp.load(state, reader, **options)
        found[name] = training.digest(state)
        found[f"{name} step"] = state["train"]["step"], str(checkpoint)
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    action = {"save": saved, "load": loaded}[sys.argv[1]]
    said = json.dumps({"rank": dist.get_rank(), **action(Path(sys.argv[2]))})
    (Path(sys.argv[2]) / f"{sys.argv[1]}-{dist.get_rank()}.json").write_text(said)
    dist.barrier()  # or who is last to leave may find the first one gone
    dist.destroy_process_group()
