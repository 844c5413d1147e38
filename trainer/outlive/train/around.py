"""What a script holds beside the objects it handed over, as texts and digests, for a rehearsal.

Nothing here is ever saved: it is how a rehearsal can name the variable that began anew.
"""

import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

import outlive
from outlive.staging.rehearsal import digest, shown
from outlive.train import generators
from outlive.train.tensors import bits, obstacle
from outlive.train.tracked import is_tracked

MOST_BYTES = 64 * 1024 * 1024
"""Of all tensors that are looked at each time."""
_SIZED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_FRAMES = 6
_NAMES = 400
_ITEMS = 64
_NUMBERS = (bool, int, float, complex, str, bytes, numpy.generic)
_HANDLED = (DataLoader, Dataset, Sampler, Iterator, ModuleType, type)
"""What run.batches carries by itself, and what holds nothing."""
_NOT_OURS = tuple(
    str(Path(path).resolve())
    for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), Path(outlive.__file__).parent)
)


class Around:
    """``tracked``: the addresses of tensors, and the ids of objects, that are saved anyway."""

    def __init__(self, tracked: set[int]) -> None:
        self._tracked = tracked
        self._left = MOST_BYTES

    def of(self, frame: FrameType | None) -> dict[str, str]:
        """Every variable of the script's functions from `frame` outwards, and of its modules."""
        found: dict[str, str] = {}
        spaces: dict[int, tuple[str, Mapping[str, Any]]] = {}
        for each in _frames(frame):
            where = f"{each.f_code.co_name}()" if each.f_locals is not each.f_globals else ""
            spaces.setdefault(id(each) if where else id(each.f_globals), (where, each.f_locals))
            spaces.setdefault(id(each.f_globals), ("", each.f_globals))
        for where, names in spaces.values():
            for name, value in list(names.items())[:_NAMES]:
                if not name.startswith("__"):
                    self._guarded(f"{name} in {where}" if where else name, value, found)
        return found

    def _guarded(self, name: str, value: Any, found: dict[str, str]) -> None:
        try:
            self._variable(name, value, found)
        except Exception:  # whatever an object of the script's raises when it is looked at: it is passed over
            return

    def _variable(self, name: str, value: Any, found: dict[str, str]) -> None:
        if type(value).__module__.startswith("outlive."):
            return  # the run itself
        if name.startswith("self in ") and hasattr(value, "__dict__"):
            for key, inner in list(vars(value).items())[:_NAMES]:
                self._variable(f"self.{key}", inner, found)
            return
        text = self._text(value)
        if text is not None:
            found.setdefault(name, text)
        elif not isinstance(value, _HANDLED) and id(value) not in self._tracked:
            held = [generators.capture(each) for each in generators.find([value])]
            if held:
                found.setdefault(f"a generator of {name}", shown(str(held)))

    def _text(self, value: Any) -> str | None:
        """What tells two of its kind apart; None for what can't be looked into."""
        if value is None or isinstance(value, _NUMBERS):
            return shown(repr(value))
        if isinstance(value, Tensor | numpy.ndarray):
            return self._array(value)
        if generators.is_generator(value):
            return f"generator {shown(str(generators.capture(value)))}"
        if isinstance(value, list | tuple) and all(isinstance(v, _NUMBERS) for v in value[:_ITEMS]):
            return f"{len(value)} items {shown(repr(value[-_ITEMS:]))}"
        if not isinstance(value, _HANDLED) and is_tracked(value):
            return self._object(value)
        return None

    def _array(self, value: Any) -> str | None:
        if isinstance(value, Tensor):
            if value.data_ptr() in self._tracked or obstacle(value) is not None:
                return None
            size = value.numel() * value.element_size()
        else:
            size = value.nbytes
        if size > self._left:
            return None
        self._left -= size
        return tensor_digest(value) if isinstance(value, Tensor) else digest(value.tobytes())

    def _object(self, value: Any) -> str | None:
        """Something with a state of its own that was not handed over."""
        if id(value) in self._tracked:
            return None
        parts: list[str] = []
        for leaf in _flat(value.state_dict()):
            text = self._array(leaf) if isinstance(leaf, Tensor | numpy.ndarray) else shown(repr(leaf))
            parts += [text] if text is not None else []
        return f"object {digest(repr(parts).encode())}" if parts else None


def tensor_digest(tensor: Tensor) -> str:
    """A digest of its bits, wherever it is."""
    if tensor.numel() == 0:
        return digest(b"")
    raw = bits(tensor).cpu().contiguous().view(-1).view(torch.uint8)
    return digest(raw.numpy().tobytes())


def norm(tensor: Tensor) -> str:
    """Its size, by which a person sees how far two are apart; empty for what is no such number."""
    if tensor.dtype not in _SIZED or tensor.numel() == 0:
        return ""
    return float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)).hex()


def batch_digest(batch: Any) -> str:
    """A digest of everything in a batch that can be told apart."""
    parts: list[str] = []
    for leaf in _flat(batch):
        if isinstance(leaf, Tensor) and obstacle(leaf) is None:
            parts.append(tensor_digest(leaf))
        elif isinstance(leaf, numpy.ndarray) and leaf.dtype.kind != "O":
            parts.append(digest(leaf.tobytes()))
        elif isinstance(leaf, _NUMBERS):
            parts.append(shown(repr(leaf)))
        else:
            parts.append(type(leaf).__name__)
    return parts[0] if len(parts) == 1 and parts[0].startswith("#") else digest("\n".join(parts).encode())


def _flat(tree: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(tree, Mapping) and depth < _FRAMES:
        for key, value in tree.items():
            yield str(key)
            yield from _flat(value, depth + 1)
    elif isinstance(tree, list | tuple) and depth < _FRAMES:
        for value in tree:
            yield from _flat(value, depth + 1)
    else:
        yield tree


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Those of the user's own code."""
    left = _FRAMES
    while frame is not None and left:
        name = frame.f_code.co_filename
        if not (name.startswith("<frozen") or str(Path(name).resolve()).startswith(_NOT_OURS)):
            yield frame
            left -= 1
        frame = frame.f_back
