"""Moves tensors' bits into an image, at once or by a thread of its own while the training goes on.

Never by torch's own threads: a copy that all of them share waits for the slowest, and on a busy machine that
takes ten times as long as one thread alone.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

import numpy
import torch
from torch import Tensor

from outlive.train.tensors import size_bytes

Move: TypeAlias = tuple[Tensor, Tensor]
"""Where to, and what: both seen as integers."""

_SMALL_ELEMENTS = 32768
"""torch copies fewer than these by the calling thread alone, and many tensors in one call."""
_PIECE_BYTES = 32 * 1024 * 1024
_PIECE_TENSORS = 2048
_WORTH_HELP_BYTES = 64 * 1024 * 1024
MOST_HELPERS = 3


class Copying:
    """The copying of tensors on the host. Ends whether or not somebody waits."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.nanoseconds = 0
        """From the start to the last byte, once that is copied."""
        self.whole = True
        """Whether no piece has failed so far."""
        self._pieces = deque(_pieces(moves))
        self._left = len(self._pieces)
        self._lock = threading.Lock()
        self._copied = threading.Event()
        self._began = time.monotonic_ns()
        if not self._left:
            self._copied.set()

    @property
    def copied(self) -> bool:
        return self._copied.is_set()

    def start(self) -> None:
        """Copy beside the caller. Daemon threads: a process that ends meanwhile has torn the image anyway."""
        threading.Thread(target=self.work, name="outlive-copy", daemon=True).start()

    def work(self) -> None:
        """Copy pieces until none is left. Any number of threads may do that at once."""
        while self._pieces:
            try:
                piece = self._pieces.popleft()
            except IndexError:  # another thread was faster
                return
            moved = False
            try:
                move(piece)
                moved = True
            finally:  # nobody may wait for ever for a thread that has failed
                self._done(moved=moved)

    def _done(self, *, moved: bool) -> None:
        with self._lock:
            self.whole = self.whole and moved
            self._left -= 1
            if not self._left:
                self.nanoseconds = time.monotonic_ns() - self._began
                self._copied.set()

    def finish(self) -> None:
        """Wait for the last byte, and help: the caller has nothing else to do."""
        rest = sum(size_bytes(target) for piece in list(self._pieces) for target, _ in piece)
        helpers = min(MOST_HELPERS, (os.cpu_count() or 1) - 2, rest // _WORTH_HELP_BYTES)
        for _ in range(helpers):
            self.start()
        self.work()
        self._copied.wait()


def copy(moves: Sequence[Move]) -> None:
    """Copy everything now."""
    Copying(moves).finish()


def move(piece: Sequence[Move]) -> None:
    """Copy with this thread alone."""
    if len(piece) == 1 and _is_large(piece[0]):
        target, source = piece[0]
        numpy.copyto(target.numpy(), source.numpy())
    else:
        torch._foreach_copy_([target for target, _ in piece], [source for _, source in piece])


def _is_large(one: Move) -> bool:
    target, source = one
    return target.numel() >= _SMALL_ELEMENTS and source.device.type == "cpu"


def _pieces(moves: Sequence[Move]) -> list[Sequence[Move]]:
    """A large tensor, or a part of it, each; the small ones many at a time."""
    small = iter([one for one in moves if not _is_large(one)])
    pieces: list[Sequence[Move]] = []
    while some := list(islice(small, _PIECE_TENSORS)):
        pieces.append(some)
    for target, source in (one for one in moves if _is_large(one)):
        rows = max(1, _PIECE_BYTES * len(source) // size_bytes(source))
        pieces += [[part] for part in zip(torch.split(target, rows), torch.split(source, rows), strict=True)]
    return pieces
