"""Whether tensors that are copied beside the training still are what they were at the boundary."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from outlive.train.copying import Move

_SAMPLED_ELEMENTS = 16


class Watch:
    """What was noted of some tensors at a boundary, to tell later whether their copy is of that moment.

    torch counts the changes of each tensor, except those that go by ``.data``, numpy or a foreign kernel.
    So a few elements of each are kept too: whoever exchanges a tensor as a whole (an evaluation with averaged
    weights) changes those as well. A change of a part that torch does not count remains unseen here.
    """

    def __init__(self, sources: Sequence[Tensor], moves: Sequence[Move]) -> None:
        """`sources` are the tensors as the training has them, in the order of `moves`."""
        self._sources = sources
        self._versions = [source._version for source in sources]
        alike: dict[object, list[int]] = {}
        for i, (_, source) in enumerate(moves):
            alike.setdefault((source.device, source.dtype), []).append(i)
        self._targets = [[moves[i][0] for i in some] for some in alike.values()]
        self._kept = [_few([moves[i][1] for i in some]) for some in alike.values()]

    def counted(self) -> list[int]:
        """Which of the tensors torch has counted a change of.

        A change is counted when it ends, so one that is under way in another thread is not seen.
        """
        now = [source._version for source in self._sources]
        if now == self._versions:
            return []
        return [i for i, version in enumerate(self._versions) if now[i] != version]

    def exchanged(self) -> bool:
        """Whether the finished copy holds other elements than those that were kept."""
        return any(
            not torch.equal(kept.cpu(), _few(targets))
            for kept, targets in zip(self._kept, self._targets, strict=True)
        )


def _few(tensors: Sequence[Tensor]) -> Tensor:
    """Some elements of each, one after the other: the same ones whatever order they have in memory."""
    return torch.cat([tensor.as_strided(*_diagonal(tensor.shape, tensor.stride())) for tensor in tensors])


@lru_cache(maxsize=4096)
def _diagonal(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int], tuple[int]]:
    """Elements as far from each other as can be, in every dimension at once: how many, and their distance."""
    count = min(_SAMPLED_ELEMENTS, max(shape, default=1))
    if count == 1:
        return (1,), (1,)
    return (count,), (
        sum((size - 1) // (count - 1) * step for size, step in zip(shape, strides, strict=True)),
    )
