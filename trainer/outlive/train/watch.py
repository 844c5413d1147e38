"""Whether tensors that are copied beside the training still are what they were at the boundary."""

from collections.abc import Sequence

import torch
from torch import Tensor

from outlive.train.copying import Move

_SAMPLED_TENSORS = 64
_SAMPLED_ELEMENTS = 16


class Watch:
    """What was noted of some tensors at a boundary, to tell later whether their copy is of that moment.

    torch counts the changes of each tensor, except those that go by ``.data``, numpy or a foreign kernel.
    So a few elements are kept too: whoever exchanges tensors as a whole (an evaluation with averaged
    weights) changes those as well. A change of a part that torch does not count remains unseen here.
    """

    def __init__(self, sources: Sequence[Tensor], moves: Sequence[Move]) -> None:
        """`sources` are the tensors as the training has them, in the order of `moves`."""
        self._sources = sources
        self._versions = [source._version for source in sources]
        every = max(1, len(moves) // _SAMPLED_TENSORS)
        sampled = [(target, source) for target, source in moves[::every] if source.is_contiguous()]
        self._copies = [_few(target) for target, _ in sampled]
        few = [_few(source) for _, source in sampled]
        self._kept = [torch.empty_like(elements) for elements in few]
        if few:
            torch._foreach_copy_(self._kept, few)

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
            not torch.equal(kept.cpu(), copy) for kept, copy in zip(self._kept, self._copies, strict=True)
        )


def _few(tensor: Tensor) -> Tensor:
    flat = tensor.view(-1)
    return flat[:: max(1, len(flat) // _SAMPLED_ELEMENTS)][:_SAMPLED_ELEMENTS]
