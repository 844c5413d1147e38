"""The trainer's memory for snapshots: whose it is at the moment, and what lies where in it."""

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from outlive.staging.arena import Arena, notes_to_fd
from outlive.staging.messages import ArenaOffer, SnapshotTaken
from outlive.train import environment
from outlive.train.boundary import Stand, Want
from outlive.train.layout import Layout
from outlive.train.link import Link
from outlive.train.snapshot import Plan

MAIN, SPARE = 0, 1


class Arenas:
    """One arena for all snapshots, and a spare one for the last snapshot of a process that must stop now."""

    def __init__(self, link: Link, first: Arena | None = None) -> None:
        self.number = 0
        """Of the last snapshot of this conversation; 0 = none yet."""
        self._link = link
        self._arenas: dict[int, Arena] = {} if first is None else {MAIN: first}
        self._sent = {MAIN: 0, SPARE: 0}
        self._windows: dict[int, tuple[Layout, list[Tensor]]] = {}

    def free(self, *, stop: bool) -> int | None:
        """An arena that is the trainer's now. Only a snapshot that may not wait gets the spare one."""
        for arena in (MAIN, SPARE) if stop else (MAIN,):
            if self._link.page.freed(arena) == self._sent[arena]:
                return arena
        return None

    def hand_over(self, plan: Plan, want: Want, *, arena: int, stand: Stand) -> int:
        """Copy the snapshot and give it to the agent; its number. ``EOFError`` if the agent has gone."""
        windows = self._windows_for(plan.layout, arena)
        number = self.number + 1
        self._link.page.begin(arena, number)
        began = time.monotonic_ns()
        plan.copy_into(windows)
        took = time.monotonic_ns() - began
        self._link.page.copy_ns = took
        packet = SnapshotTaken(
            number=number,
            arena=arena,
            step=stand.step,
            epoch=stand.epoch,
            reason=want.reason,
            bytes=plan.layout.size,
            table=len(plan.layout.table),
            values=len(plan.values),
            metrics=_numbers(stand.metrics),
            environment=environment.describe(),
            copy_seconds=took / 1e9,
            stop=want.stop,
        )
        notes = notes_to_fd(plan.layout.table, plan.values)
        try:
            self._link.send(packet, notes)
        finally:
            os.close(notes)
        self.number = self._sent[arena] = number
        return number

    def move_to(self, link: Link) -> None:
        """Offer the same memory to another agent, whose conversation counts from the start."""
        self._link = link
        self.number = 0
        self._sent = {MAIN: 0, SPARE: 0}
        for number, arena in self._arenas.items():
            link.send(ArenaOffer(arena=number, bytes=arena.bytes), arena.fd)

    def close(self) -> None:
        self._windows.clear()
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()

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
                memory.close()
            memory = self._arenas[arena] = fresh
        windows = layout.windows(memory.view)
        self._windows[arena] = (layout, windows)
        return windows


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as numbers. Only here is a device waited for; what is no finite number is left out."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):  # several elements, text, or a freed graph
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers
