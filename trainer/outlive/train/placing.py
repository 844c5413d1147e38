"""Tensors of ranks on their way into a table, and back into what this rank holds of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from outlive.train.shards import Spread, box_of, held, is_sharded, like, local, partial
from outlive.train.tensors import Named, Stored, bits, size_bytes

PARTIAL: Final = "a DTensor whose ranks hold summands of it (redistribute it first)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """What several ranks hold, and should hold alike."""

    ranks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of a plain tensor, by its id, where DDP keeps it equal; a DTensor says so itself."""
    alike: bool = True
    """Whether it was seen to be alike. If not, each rank stores its own."""


NO_COPIES: Final = Copies()


def named(
    tensor: Tensor,
    path: str,
    *,
    spread: Spread,
    copies: Copies = NO_COPIES,
    group: int = 1,
    steady: bool = False,
) -> Named:
    """What the table says of it, and which rank stores it."""
    if not is_sharded(tensor) and id(tensor) not in copies.ranks:
        return Named(tensor=tensor, path=path, group=group, steady=steady)
    if partial(tensor):
        return Named(tensor=tensor, path=path)  # which the encoder refuses, with its path
    how, mine = held(tensor, copies.ranks), local(tensor)
    owner = spread.owner(how.ranks, size_bytes(mine)) if mine.numel() else None
    return Named(tensor=mine, path=path, group=group, steady=steady, box=how.box, owner=owner)


def put(stored: Stored, live: Tensor) -> None:
    """Copy what this rank holds of it, in place."""
    mine = local(live)
    if mine.numel():
        bits(mine).copy_(stored.cut(box_of(live)))


def made(stored: Stored, parameter: Tensor) -> Tensor:
    """A new tensor that belongs to this parameter, sharded as it is."""
    mine = local(parameter)
    fresh = torch.empty_like(mine, dtype=stored.dtype, requires_grad=False)
    if fresh.numel():
        bits(fresh).copy_(stored.cut(box_of(parameter)))
    return like(parameter, fresh)


def fingerprint(tensors: Iterable[Tensor], copies: Copies) -> dict[str, list[int]]:
    """Two sums over the bits of all that the same ranks hold alike, by these ranks: equal on each of them."""
    sums: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        if not is_sharded(tensor) and id(tensor) not in copies.ranks:
            continue
        how, mine = held(tensor, copies.ranks), local(tensor)
        if len(how.ranks) > 1 and mine.numel():
            flat = bits(mine).flatten()
            both = torch.stack([flat.sum(dtype=torch.int64), flat[::3].sum(dtype=torch.int64)])
            sums.setdefault(",".join(map(str, how.ranks)), []).append(both)
    return {ranks: torch.stack([one.cpu() for one in some]).sum(0).tolist() for ranks, some in sums.items()}
