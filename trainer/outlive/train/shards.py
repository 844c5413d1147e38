"""Which piece of a tensor this rank holds, and which of the ranks that hold the same piece stores it."""

import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from outlive.store import boxes
from outlive.train.ranks import joined

_LOCAL_SGD = "post_localSGD_hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A stretch of a tensor of shape ``whole``, from ``at`` on."""

    whole: tuple[int, ...]
    at: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How this rank holds a tensor: which piece (None: all of it), and all ranks that hold the same bytes."""

    box: Box | None = None
    ranks: tuple[int, ...] = ()


def is_sharded(value: object) -> bool:
    """Whether it is a DTensor. By name: most trainings never load that part of torch."""
    return type(value).__name__ == "DTensor"


def local(tensor: Tensor) -> Tensor:
    """This rank's own piece of it, which for a plain tensor is the tensor."""
    if not is_sharded(tensor):
        return tensor
    found: Any = tensor._local_tensor  # type: ignore[attr-defined]
    if type(found).__name__ == "AsyncCollectiveTensor":
        found = found.wait()
    piece: Tensor = found  # the same object each time, by which a plan knows it again
    return piece


def partial(tensor: Tensor) -> bool:
    """Whether the ranks hold summands of it, so that none holds a piece."""
    return is_sharded(tensor) and any(placement.is_partial() for placement in _placements(tensor))


def mark(tensor: Tensor) -> object:
    """Equal for a tensor that is held as before."""
    return id(tensor._spec) if is_sharded(tensor) else None  # type: ignore[attr-defined]


def box_of(tensor: Tensor) -> Box:
    """Which piece this rank holds."""
    if not is_sharded(tensor):
        return Box(whole=tuple(tensor.shape), at=(0,) * tensor.dim(), shape=tuple(tensor.shape))
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    spec: Any = tensor
    shape, at = compute_local_shape_and_global_offset(tensor.shape, spec.device_mesh, spec.placements)
    return Box(whole=tuple(tensor.shape), at=tuple(at), shape=tuple(shape))


def held(tensor: Tensor, replicas: Mapping[int, tuple[int, ...]]) -> Held:
    """How this rank holds it. `replicas` are the ranks of what DDP keeps equal, by the id of the tensor."""
    if not is_sharded(tensor):
        return Held(ranks=replicas.get(id(tensor), ()))
    spec: Any = tensor
    coordinate = spec.device_mesh.get_coordinate()
    if coordinate is None:
        return Held(box=box_of(tensor))
    index = tuple(
        slice(None) if placement.is_replicate() else place
        for placement, place in zip(_placements(tensor), coordinate, strict=True)
    )
    ranks = spec.device_mesh.mesh[index].flatten().tolist()
    return Held(box=box_of(tensor), ranks=tuple(sorted(ranks)))


class Spread:
    """Gives each piece that several ranks hold to the one of them that stores the least so far.

    Every rank comes to the same answers, as long as each is asked for the same tensors in the same order.
    """

    def __init__(self, *, alike: bool = True) -> None:
        """`alike`: what the ranks should hold alike was seen to be so; else each stores its own."""
        self._alike = alike
        self._loads: dict[tuple[int, ...], dict[int, int]] = {}
        self._me = torch.distributed.get_rank() if joined() else 0

    def owner(self, ranks: tuple[int, ...], size: int) -> int | None:
        """Who stores it; None if that is this rank."""
        if len(ranks) < 2 or not self._alike:
            return None
        loads = self._loads.setdefault(ranks, dict.fromkeys(ranks, 0))
        owner = min(ranks, key=lambda rank: loads[rank])
        loads[owner] += size
        return None if owner == self._me else owner


def replicas(modules: Iterable[nn.Module]) -> dict[int, tuple[int, ...]]:
    """The ranks that hold the same parameter, by its id, where DDP says so.

    DDP starts from one rank's parameters and gives each the same gradients, bit for bit, so the replicas
    stay equal. A model that averages its replicas only now and then (local SGD) is not meant.
    """
    if not joined():
        return {}
    found: dict[int, tuple[int, ...]] = {}
    tracked = {id(parameter) for module in modules for parameter in module.parameters()}
    for wrapper in _wrappers():
        hooks = [getattr(hook, "__name__", "") for hook, _ in getattr(wrapper, "_comm_hooks", [])]
        if _LOCAL_SGD in hooks:
            continue
        ranks = tuple(sorted(torch.distributed.get_process_group_ranks(wrapper.process_group)))
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        for name, parameter in wrapper.module.named_parameters():
            if id(parameter) in tracked and name not in ignored and len(ranks) > 1:
                found[id(parameter)] = ranks
    return found


def unwanted(target: object) -> str | None:
    """Why such an object can't be kept; None if it can."""
    if type(target).__name__ == "ZeroRedundancyOptimizer":
        return (
            "ZeroRedundancyOptimizer gives its state to one rank by collectives (shard it with fully_shard)"
        )
    for child in target.modules() if isinstance(target, nn.Module) else ():
        if type(child).__name__ == "FullyShardedDataParallel":
            return "FullyShardedDataParallel saves by collectives (shard it with fully_shard, FSDP2)"
    return None


def settle(module: nn.Module) -> None:
    """See to it that FSDP2 holds shards again, if the last forward pass left whole parameters behind."""
    for child in module.modules():
        if any(kind.__name__ == "FSDPModule" for kind in type(child).__mro__) and not all(
            map(is_sharded, child.parameters(recurse=False))
        ):
            child.reshard()  # type: ignore[operator]


def like(parameter: Tensor, piece: Tensor) -> Tensor:
    """A tensor as this parameter is, with this rank's piece."""
    if not is_sharded(parameter):
        return piece
    from torch.distributed.tensor import DTensor

    spec: Any = parameter
    return DTensor.from_local(
        piece,
        spec.device_mesh,
        spec.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def overlap(one: Box, other: Box) -> "tuple[tuple[slice, ...], tuple[slice, ...]] | None":
    """Where in each of them what both have lies; None if they have nothing in common."""
    ours, theirs = boxes.Box(at=one.at, shape=one.shape), boxes.Box(at=other.at, shape=other.shape)
    shared = boxes.overlap(ours, theirs)
    return None if shared is None else (_slices(shared.within(ours)), _slices(shared.within(theirs)))


def _slices(box: boxes.Box) -> tuple[slice, ...]:
    return tuple(map(slice, box.at, box.end))


def _placements(tensor: Tensor) -> Sequence[Any]:
    found: Sequence[Any] = tensor.placements  # type: ignore[attr-defined]
    return found


def _wrappers() -> Iterable[DistributedDataParallel]:
    """Every DDP module there is: a script may track what it has wrapped, rather than the wrapper."""
    return (each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel))
