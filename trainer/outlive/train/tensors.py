"""What outlive keeps of a tensor: its bits, exactly, with dtype, shape, strides and device, and nothing else.

Bits are always moved as integers of the same width, so that no NaN is made canonical on the way and every
dtype that torch knows is copied alike.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from outlive.errors import StateError
from outlive.train.shards import Box, overlap

_FLOATS = ["float64", "float32", "float16", "bfloat16"]
_FLOATS_8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
_INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]
_COMPLEX = ["complex32", "complex64", "complex128"]
_NAMES = [*_FLOATS, *_FLOATS_8, "float4_e2m1fn_x2", *_INTEGERS, *_COMPLEX]
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES if hasattr(torch, name)}
FROZEN = 0
"""The group of what never changes."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Named:
    """A tensor that is to be saved, under the name it shall have in the table."""

    tensor: Tensor
    path: str
    group: int = 1
    """FROZEN for a parameter without gradients, 1 for the rest."""
    steady: bool = False
    """Whether nothing but a step of a tracked optimizer is expected to change it."""
    box: Box | None = None
    """Of what this is a piece, where ranks share a tensor."""
    owner: int | None = None
    """The rank that stores these bytes; None: this one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A tensor that was saved: a view into the image, and what it was in the process that saved it."""

    view: Tensor
    path: str
    device: str
    strides: tuple[int, ...] | None
    place: object
    """Where it lies in its image: two that are equal were one piece of memory."""
    box: Box | None = None
    """Where ranks shared it: which piece this one is."""
    pieces: Callable[[], Iterable[tuple[Box, Tensor]]] = tuple
    """And those that any of them stored."""

    @property
    def dtype(self) -> torch.dtype:
        return self.view.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor as a whole, whoever held which piece."""
        return tuple(self.view.shape) if self.box is None else self.box.whole

    def cut(self, wanted: Box) -> Tensor:
        """The bits of this stretch: a view where one piece has them all. ``StateError``: some are missing."""
        own = Box(whole=self.shape, at=(0,) * self.view.dim(), shape=tuple(self.view.shape))
        own = self.box or own
        if (own.at, own.shape) == (wanted.at, wanted.shape):
            return bits(self.view)
        return assembled(
            wanted, self.pieces() if self.box is not None else [(own, self.view)], path=self.path
        )


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def obstacle(tensor: Tensor) -> str | None:
    """Why this tensor cannot be kept, as the end of a sentence; None if it can."""
    kind = type(tensor)
    if isinstance(tensor, UninitializedTensorMixin):
        return "a lazy parameter without a shape yet (run one forward pass before attach)"
    if kind.__name__ == "DTensor":
        return "a DTensor outside of a module's parameters and its optimizer (keep its local tensor)"
    if kind not in (Tensor, torch.nn.Parameter):
        return f"a tensor of the class {kind.__module__}.{kind.__qualname__} (keep its plain inner tensors)"
    if tensor.is_quantized:
        return "a quantised tensor (keep int_repr(), scale and zero point instead)"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout} (keep its dense parts instead)"
    if tensor.is_meta:
        return "a tensor on the meta device, which has no data"
    if dtype_name(tensor.dtype) not in DTYPES:
        return f"a tensor of dtype {tensor.dtype}"
    return None


def bits(tensor: Tensor) -> Tensor:
    """The same memory, seen as integers (complex ones as pairs of them)."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.is_neg():
        plain = plain.resolve_neg()
    return plain.view(_BITS[plain.element_size()])


def place(tensor: Tensor) -> tuple[object, ...] | None:
    """Equal for two tensors that are the same piece of memory seen alike; None for those without memory."""
    if tensor.numel() == 0:
        return None
    looks = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
    return (tensor.device, tensor.data_ptr(), looks)


def size_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def dense_strides(tensor: Tensor) -> tuple[int, ...] | None:
    """Its strides if it is dense in memory but not row-major (channels_last is), else None."""
    if tensor.is_contiguous() or tensor.numel() == 0 or not is_dense(tensor.shape, tensor.stride()):
        return None
    return tuple(tensor.stride())


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these strides reach every element of one block of memory exactly once."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def window(image: memoryview, dtype: torch.dtype, *, shape: Sequence[int], offset: int) -> Tensor:
    """A tensor whose memory is the image's, from `offset` on."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    raw = torch.frombuffer(image, dtype=torch.uint8, count=size, offset=offset)
    return raw.view(dtype).view(tuple(shape))


def revive(stored: Stored, device: torch.device | str | None = None) -> Tensor:
    """A tensor of its own with the stored bits, on `device` or where it was saved."""
    where = torch.device(device) if device is not None else available(stored.device)
    if stored.box is not None:
        whole = Box(whole=stored.shape, at=(0,) * len(stored.shape), shape=stored.shape)
        fresh = torch.empty(stored.shape, dtype=stored.dtype, device=where)
        bits(fresh).copy_(stored.cut(whole))
        return fresh
    if stored.strides is None:
        fresh = torch.empty(stored.shape, dtype=stored.dtype, device=where)
    else:
        fresh = torch.empty_strided(stored.shape, stored.strides, dtype=stored.dtype, device=where)
    bits(fresh).copy_(bits(stored.view))
    return fresh


def assembled(wanted: Box, pieces: "Iterable[tuple[Box, Tensor]]", *, path: str) -> Tensor:
    """The bits of a stretch of a tensor, put together from the pieces that overlap it."""
    found: Tensor | None = None
    missing = math.prod(wanted.shape)
    seen = set()
    for box, view in pieces:
        if (box.at, box.shape) in seen or (common := overlap(wanted, box)) is None:
            continue
        seen.add((box.at, box.shape))
        into, source = common[0], bits(view)[common[1]]
        missing -= math.prod(source.shape[: len(box.shape)])
        if found is None:
            if source.shape[: len(wanted.shape)] == wanted.shape:
                return source
            found = torch.empty((*wanted.shape, *source.shape[len(box.shape) :]), dtype=source.dtype)
        found[into] = source
    if missing or found is None:
        if not missing:
            return torch.empty(wanted.shape, dtype=torch.uint8)
        raise StateError(f"{path}: the checkpoint lacks {missing} of its {math.prod(wanted.whole)} numbers")
    return found


def available(device: str) -> torch.device:
    """The device of that name, or the nearest thing this machine has."""
    wanted = torch.device(device)
    if wanted.type == "cpu":
        return wanted
    module = getattr(torch, wanted.type, None)
    if module is None or not module.is_available():
        return torch.device("cpu")
    if wanted.index is not None and wanted.index >= module.device_count():
        return torch.device(wanted.type, 0)
    return wanted
