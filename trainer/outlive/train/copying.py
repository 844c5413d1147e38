"""Moves tensors' bits into an image, at once or by a thread of its own while the training goes on.

Never by torch's own threads: a copy that all of them share waits for the slowest, and on a busy machine that
takes ten times as long as one thread alone.
"""

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy
import torch
from torch import Tensor

from outlive.errors import StateError
from outlive.train.beside import beside
from outlive.train.devices import Moments
from outlive.train.tensors import size_bytes

Move: TypeAlias = tuple[Tensor, Tensor]
"""Where to, and what: both seen as integers."""

_SMALL_ELEMENTS = 32768
"""torch copies fewer than these by the calling thread alone, and many tensors in one call."""
_PIECE_BYTES = 32 * 1024 * 1024
_PIECE_TENSORS = 2048
_WORTH_HELP_BYTES = 64 * 1024 * 1024
MOST_HELPERS = 3


class _Freed(Exception):
    """The training has taken a tensor's memory away while it was copied."""


class _Piece(NamedTuple):
    bytes: int
    do: Callable[[], None]


class Copying:
    """The copying of tensors on the host, and the comparing of some that should be in the image already."""

    def __init__(self, moves: Sequence[Move], compared: Sequence[Move] = ()) -> None:
        self.nanoseconds = 0
        """From the start to the last byte, once that is copied."""
        self.whole = True
        """Whether no piece has failed so far."""
        self.unequal: list[int] = []
        """Which of `compared` turned out to be something else than what lies in the image."""
        self._pieces = deque(_pieces(moves))
        self._pieces += [
            _Piece(size_bytes(one[0]), partial(self._compare, i)) for i, one in enumerate(compared)
        ]
        self._compared = compared
        self._left = len(self._pieces)
        self._lock = threading.Lock()
        self._copied = threading.Event()
        self._began = time.monotonic_ns()
        if not self._left:
            self._copied.set()

    @property
    def copied(self) -> bool:
        return self._copied.is_set()

    def give_up(self) -> None:
        """Begin no further piece. The copy is never whole then."""
        self._pieces.clear()

    def work(self) -> None:
        """Copy pieces until none is left. Any number of threads may do that at once."""
        while self._pieces:
            try:
                piece = self._pieces.popleft()
            except IndexError:  # another thread was faster
                return
            done = False
            try:
                piece.do()
                done = True
            except _Freed:
                pass
            finally:  # nobody may wait for ever for a thread that has failed
                self._done(done=done)

    def finish(self) -> None:
        """Wait for the last byte, and help: the caller has nothing else to do."""
        rest = sum(piece.bytes for piece in list(self._pieces))
        helpers = min(MOST_HELPERS, (os.cpu_count() or 1) - 2, rest // _WORTH_HELP_BYTES)
        for _ in range(helpers):
            beside(self.work, name="outlive-copy", give_up=self.give_up)
        self.work()
        self._copied.wait()

    def _compare(self, i: int) -> None:
        if not same_bytes(*self._compared[i]):
            self.unequal.append(i)

    def _done(self, *, done: bool) -> None:
        with self._lock:
            self.whole = self.whole and done
            self._left -= 1
            if not self._left:
                self.nanoseconds = time.monotonic_ns() - self._began
                self._copied.set()


def copy(moves: Sequence[Move]) -> None:
    """Copy everything now. ``StateError`` if there is anything that can't be read."""
    copying = Copying(moves)
    copying.finish()
    if not copying.whole:
        raise without_memory("a tensor of the state")


def without_memory(what: str) -> StateError:
    return StateError(
        f"{what} has no memory behind it",
        hint="give back before run.step() what storage.resize_() has taken away",
    )


def same_bytes(image: Tensor, source: Tensor) -> bool:
    """Whether the image holds what the tensor does."""
    if not _there(source):
        return False
    here = source.cpu()
    if not here.is_contiguous():
        return torch.equal(image, here)
    # torch.equal would share this among torch's threads, each of which a busy machine may hold up.
    return not _memcmp(image.data_ptr(), here.data_ptr(), size_bytes(image))


def _there(tensor: Tensor) -> bool:
    """Whether it still has the memory behind it. torch itself would read past the end of a storage that the
    training has shrunk meanwhile (``storage.resize_(0)``).
    """
    return tensor.device.type != "cpu" or tensor.untyped_storage().nbytes() >= _extent(tensor) + (
        tensor.storage_offset() * tensor.element_size()
    )


def _extent(tensor: Tensor) -> int:
    """Bytes from its first element to the end of its last one."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _array(tensor: Tensor) -> "numpy.ndarray[Any, Any]":
    """numpy's view of memory on the host. Not by ``Tensor.numpy()``, after which torch never again lets the
    training resize the tensor's storage, not even when the view is gone.
    """
    if not _there(tensor):
        raise _Freed
    width = tensor.element_size()
    memory = memoryview((ctypes.c_char * _extent(tensor)).from_address(tensor.data_ptr()))
    steps = [step * width for step in tensor.stride()]
    array: numpy.ndarray[Any, Any] = numpy.ndarray(tensor.shape, f"i{width}", memory, strides=steps)
    return array


def _move_small(moves: Sequence[Move]) -> None:
    if not all(source.data_ptr() for _, source in moves):  # a look at each storage takes longer than its copy
        raise _Freed
    torch._foreach_copy_([target for target, _ in moves], [source for _, source in moves])


def _move_large(target: Tensor, source: Tensor) -> None:
    here = source.cpu()  # held while it is read: from another kind of device it is a copy
    numpy.copyto(_array(target), _array(here))


def _is_large(one: Move) -> bool:
    return one[0].numel() >= _SMALL_ELEMENTS


def _pieces(moves: Sequence[Move]) -> list[_Piece]:
    """A large tensor, or a part of it, each; the small ones many at a time."""
    pieces = []
    for device in {source.device for _, source in moves if source.is_cuda}:
        there = [one for one in moves if one[1].device == device]
        size = sum(size_bytes(target) for target, _ in there)
        pieces.append(_Piece(size, partial(Moments(source for _, source in there).copy, there)))
    if pieces:
        moves = [one for one in moves if not one[1].is_cuda]
    large = [one for one in moves if _is_large(one)]
    small = [one for one in moves if not _is_large(one)] if len(large) < len(moves) else []
    for start in range(0, len(small), _PIECE_TENSORS):
        some = small[start : start + _PIECE_TENSORS]
        pieces.append(_Piece(sum(size_bytes(target) for target, _ in some), partial(_move_small, some)))
    for target, source in large:
        rows = max(1, _PIECE_BYTES * len(source) // size_bytes(source))
        for into, part in zip(torch.split(target, rows), torch.split(source, rows), strict=True):
            pieces.append(_Piece(size_bytes(into), partial(_move_large, into, part)))
    return pieces


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
