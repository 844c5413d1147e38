"""Copies from CUDA devices, each on a stream of its own, and memory that they reach without a detour."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

KINDS = ("cpu", "cuda")
"""Where a tensor may be that is copied beside the training."""


class Moments:
    """How far each device has come at a boundary. A copy waits for that, and for nothing that comes later."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._reached = {
            device: torch.cuda.current_stream(device).record_event()
            for device in {tensor.device for tensor in tensors if tensor.is_cuda}
        }

    def copy(self, moves: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Copy tensors of one device to the host; the other streams of the device go on meanwhile."""
        device = moves[0][1].device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_event(self._reached[device])
        with torch.cuda.stream(stream):
            torch._foreach_copy_(
                [target for target, _ in moves], [source for _, source in moves], non_blocking=True
            )
        stream.synchronize()


def pin(memory: memoryview) -> int:
    """Let CUDA devices copy straight into an arena. Its address for ``unpin``; 0 where there is no need."""
    if not torch.cuda.is_initialized() or not memory.nbytes:  # type: ignore[no-untyped-call]
        return 0
    address = torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr()
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    failed = cudart.cudaHostRegister(address, memory.nbytes, 0)
    return 0 if int(failed) else address


def unpin(address: int) -> None:
    """Before the arena is unmapped."""
    if address:
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        cudart.cudaHostUnregister(address)
