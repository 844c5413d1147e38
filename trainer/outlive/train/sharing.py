"""A state that others saved than the ranks that go on from it: whose values count, what is not exact."""

import hashlib
import random
from typing import Any

import numpy
import torch

from outlive.store.layout import CheckpointId
from outlive.train.ranks import Ranks

_SPLIT = "DistributedSampler"
"""Deals the samples out in turn, so that so many batches of so many ranks are a stretch of the data."""


def shared_anew(loops: Any, *, before: int, now: int) -> Any:
    """The position in the loops, where the data is dealt out to another number of ranks."""
    if before == now:
        return loops
    if isinstance(loops, list):
        return [shared_anew(each, before=before, now=now) for each in loops]
    if not isinstance(loops, dict):
        return loops
    found = {name: shared_anew(each, before=before, now=now) for name, each in loops.items()}
    if _SPLIT in str(found.get("data")) and isinstance(found.get("delivered"), int):
        # Rounded down: some samples come twice rather than never.
        found["delivered"] = found["delivered"] * before // now
    return found


def reseed(checkpoint: CheckpointId, rank: int) -> None:
    """Random numbers for a rank that there was not before: its own, and the same whenever it begins here."""
    text = f"{checkpoint.life}-{checkpoint.step}-{rank}".encode()
    seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)


def doubt(ranks: Ranks | None, *, before: int) -> list[str]:
    """Why this resume is not exact, if the ranks are not as many as before."""
    now = 1 if ranks is None else ranks.world
    if before == now:
        return []
    came = (
        f"saved by {before} ranks, and here are {now}"
        if before > 1
        else f"saved by one, here are {now} ranks"
    )
    return [f"{came}: the tensors are the same, but data and random numbers are shared out anew"]
