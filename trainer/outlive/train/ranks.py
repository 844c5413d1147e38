"""Which rank this process is, where the training has several."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch.distributed

from outlive.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This rank among all, and among those of its node. Never of a world of one."""

    rank: int
    world: int
    local_rank: int
    local_world: int

    @property
    def first(self) -> bool:
        """Whether this is the rank of its node that talks to the agent."""
        return self.local_rank == 0

    @property
    def node(self) -> int:
        """The rank of the first one on this node."""
        return self.rank - self.local_rank

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> "Ranks | None":
        """None in a training of one process. ``ConfigError`` where it can't be told, or can't be kept."""
        if not joined():
            world = environ.get("WORLD_SIZE", "1")
            if world in {"", "1"}:
                return None
            raise ConfigError(
                f"WORLD_SIZE is {world}, and torch.distributed is not set up yet",
                hint="call torch.distributed.init_process_group() before outlive.attach()",
            )
        world_size = torch.distributed.get_world_size()
        if world_size == 1:
            return None
        try:
            local_rank, local_world = int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"])
        except (KeyError, ValueError):
            raise ConfigError(
                "LOCAL_RANK and LOCAL_WORLD_SIZE don't say which of the ranks are on this machine",
                hint="start the ranks with torchrun, or set both as torchrun does",
            ) from None
        if local_world != world_size:
            raise ConfigError(
                f"{local_world} of the {world_size} ranks are on this machine, and ranks of several machines"
                " can't be saved yet",
                hint="start all ranks on one machine: torchrun --nnodes 1",
            )
        return cls(
            rank=torch.distributed.get_rank(),
            world=world_size,
            local_rank=local_rank,
            local_world=local_world,
        )


def joined() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
