"""The trainer's memory for snapshots: whose it is at the moment, and what lies where in it."""

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from outlive.staging.arena import Arena, notes_to_fd
from outlive.staging.messages import ArenaOffer, SnapshotTaken
from outlive.train.devices import pin, unpin
from outlive.train.layout import Layout
from outlive.train.link import Link

MAIN, SPARE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where one snapshot goes."""

    arena: int
    number: int
    windows: Sequence[Tensor]


class Pane:
    """A stretch of memory, as the windows of the layout that is copied into it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._layout: Layout | None = None
        self._windows: list[Tensor] = []

    def windows(self, layout: Layout) -> list[Tensor]:
        """Made, and the gaps between them cleared, only when another layout comes."""
        if self._layout is not layout:
            layout.clear_gaps(self._view)
            self._layout, self._windows = layout, layout.windows(self._view)
        return self._windows


class Memory(Protocol):
    """Where snapshots go. With several ranks: `grounds` for the first of a node, `member` for the others."""

    number: int
    """Of the last snapshot of this conversation; 0 = none yet."""

    @property
    def parted(self) -> bool:
        """Whether ranks have ended without whom no snapshot is whole."""

    def free(self, *, stop: bool) -> int | None:
        """An arena that is the trainer's now."""

    def last_free(self) -> int | None:
        """The same for the last snapshot of a training that has ended."""

    def prepare(self, layout: Layout) -> None:
        """Have memory for such an image before the first save."""

    def fits(self, layout: Layout, arena: int) -> bool:
        """Whether this arena can hold such an image."""

    def begin(self, layout: Layout, arena: int) -> Room:
        """Room for the next snapshot; what the arena held is lost. ``EOFError`` if the agent has gone."""

    def hand_over(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        """Give the agent the snapshot whose last byte is copied. ``EOFError`` if it has gone."""

    def give_up(self) -> None:
        """The snapshot that was begun, or could have been, is not taken."""

    def move_to(self, link: Link) -> None:
        """Offer the same memory to another agent, whose conversation counts from the start."""

    def close(self) -> None:
        """Let go of it."""


class Arenas:
    """One arena for all snapshots, and a spare one for the last snapshot of a process that must stop now."""

    def __init__(self, link: Link, first: Arena | None = None) -> None:
        self.number = 0
        """Of the last snapshot of this conversation; 0 = none yet."""
        self._link = link
        self._arenas: dict[int, Arena] = {} if first is None else {MAIN: first}
        self._sent = {MAIN: 0, SPARE: 0}
        self._windows: dict[int, tuple[Layout, list[Tensor]]] = {}
        self._cleared: dict[int, Layout] = {}
        self._touching: threading.Thread | None = None
        self._pinned = 0

    @property
    def parted(self) -> bool:
        """There is only this one."""
        return False

    def free(self, *, stop: bool) -> int | None:
        """An arena that is the trainer's now. Only a snapshot that may not wait gets the spare one."""
        for arena in (MAIN, SPARE) if stop else (MAIN,):
            if self._link.page.freed(arena) == self._sent[arena]:
                return arena
        return None

    def last_free(self) -> int | None:
        """The same: it waits for nobody else."""
        return self.free(stop=False)

    def fits(self, layout: Layout, arena: int) -> bool:
        """Always: it grows."""
        return True

    def give_up(self) -> None:
        """Nobody else waits for it."""

    def prepare(self, layout: Layout) -> None:
        """Have memory for such an image before the first save, and touch it off the training's thread."""
        if self.free(stop=False) is None:
            return
        self._windows_for(layout, MAIN)
        touching = threading.Thread(target=self._touch, name="outlive-prefault", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread to be had: then the first save touches it
            touching.start()
            self._touching = touching

    def begin(self, layout: Layout, arena: int) -> Room:
        """Room for the next snapshot; what the arena held is lost. ``EOFError`` if the agent has gone."""
        windows = self._windows_for(layout, arena)
        number = self.number + 1
        self._link.page.begin(arena, number)
        if self._cleared.get(arena) is not layout:
            layout.clear_gaps(self._arenas[arena].view)
            self._cleared[arena] = layout
        return Room(arena=arena, number=number, windows=windows)

    def hand_over(self, packet: SnapshotTaken, *, values: bytes, table: bytes) -> None:
        """Give the agent the snapshot whose last byte is copied. ``EOFError`` if it has gone."""
        notes = notes_to_fd(table, values)
        try:
            self._link.send(packet, notes)
        finally:
            os.close(notes)
        self.number = self._sent[packet.arena] = packet.number

    def move_to(self, link: Link) -> None:
        """Offer the same memory to another agent, whose conversation counts from the start."""
        self._link = link
        self.number = 0
        self._sent = {MAIN: 0, SPARE: 0}
        for number, arena in self._arenas.items():
            link.send(ArenaOffer(arena=number, bytes=arena.bytes), arena.fd)

    def close(self) -> None:
        self._unpin()
        self._windows.clear()
        self._cleared.clear()
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()

    def _touch(self) -> None:
        arena = self._arenas[MAIN]
        arena.prefault()
        self._pinned = pin(arena.view)

    def _unpin(self) -> None:
        if self._touching is not None:
            self._touching.join()
        unpin(self._pinned)
        self._touching, self._pinned = None, 0

    def _windows_for(self, layout: Layout, arena: int) -> list[Tensor]:
        known = self._windows.get(arena)
        if known is not None and known[0] is layout:
            return known[1]
        self._windows.pop(arena, None)
        memory = self._arenas.get(arena)
        if memory is None or memory.bytes < layout.size:
            fresh = Arena.create(layout.size)
            self._link.send(ArenaOffer(arena=arena, bytes=fresh.bytes), fresh.fd)
            if memory is not None:
                self._unpin()
                memory.close()
            memory = self._arenas[arena] = fresh
        windows = layout.windows(memory.view)
        self._windows[arena] = (layout, windows)
        return windows
