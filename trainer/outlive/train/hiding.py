"""Which tensors are copied beside the training, by what this training was seen to do."""

from collections.abc import Callable, Sequence
from enum import Enum

from torch import Tensor

from outlive.store.table import TensorEntry
from outlive.train.copying import Move, same_bytes
from outlive.train.devices import KINDS
from outlive.train.layout import Layout
from outlive.train.snapshot import Plan
from outlive.train.tensors import FROZEN

WORTH_BYTES = 4 * 1024 * 1024
"""Less than this is copied at the boundary in about the time that a thread takes to start."""
_LEAST_BYTES = 16 * 1024
"""A smaller tensor is copied at the boundary in about the time that a look at its elements takes."""
_RESTING_BYTES = 64 * 1024
_MOST_LOST = 2


class Way(Enum):
    """How one tensor gets into the image."""

    AT_ONCE = 0
    BESIDE = 1
    COMPARED = 2
    """It lies there already, from an earlier snapshot, if comparing it beside the training says so."""


class Hiding:
    """Begins with a trial: the first snapshot is copied at the boundary, and compared by every byte just
    before the next step of an optimizer. What differs then is changed outside of steps, and is always
    copied at the boundary. So is what no optimizer steps, except frozen parameters, which rest.
    """

    def __init__(self, say: Callable[[str], None], *, wanted: bool) -> None:
        self._say = say
        self._wanted = wanted
        self._tried = False
        self._trial: tuple[Sequence[Move], Sequence[str]] | None = None
        self._restless: set[str] = set()
        self._in_image: dict[int, tuple[Layout, dict[int, int]]] = {}
        self._lost = 0
        self._once = False

    def ways(self, plan: Plan, *, arena: int, stop: bool) -> list[Way]:
        """For each tensor that is copied, how it is."""
        at_once, self._once = self._once, False
        ways = [Way.AT_ONCE] * len(plan.steady)
        if self._wanted and self._tried and not (stop or at_once):
            chosen = dict.fromkeys(self._steady(plan), Way.BESIDE)
            chosen |= dict.fromkeys(self._resting(plan, arena), Way.COMPARED)
            if sum(_bytes(plan, i) for i in chosen) >= WORTH_BYTES:
                for i, way in chosen.items():
                    ways[i] = way
        self._in_image.pop(arena, None)
        return ways

    def versions(self, plan: Plan) -> dict[int, int]:
        """torch's count of changes of what may be resting, at this boundary."""
        if not self._wanted:
            return {}
        return {
            i: plan.sources[i]._version
            for i, steady in enumerate(plan.steady)
            if not steady
            and _entry(plan, i).group == FROZEN
            and _bytes(plan, i) >= _RESTING_BYTES
            and _counted(plan.sources[i], "cpu")
        }

    def taken(self, plan: Plan, moves: Sequence[Move], *, arena: int, versions: dict[int, int]) -> None:
        """A snapshot is whole, and at its boundary those were the versions."""
        self._in_image[arena] = (plan.layout, versions)
        if self._wanted and not self._tried:
            steady = self._steady(plan)
            self._trial = ([moves[i] for i in steady], [path(plan, i) for i in steady]) if steady else None

    def before_step(self) -> None:
        """An optimizer is about to change what it changes."""
        if self._trial is not None:
            (moves, paths), self._trial = self._trial, None
            self._restless.update(
                where for where, move in zip(paths, moves, strict=True) if not same_bytes(*move)
            )
            self._tried = True

    def lost(self, paths: Sequence[str], *, exchanged: bool) -> None:
        """A snapshot is of no use: these may have been changed while they were copied, all by one exchange
        (for an evaluation perhaps, which says nothing about each of them) or one by one.
        """
        self._lost += 1
        if not exchanged:
            self._restless.update(paths)
        if self._lost == _MOST_LOST:
            self._wanted = False
            few = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            self._say(
                f"{few} changed after run.step() and before the next optimizer step, so from now on the "
                "training waits for every copy (make such changes before run.step())"
            )

    def not_resting(self, paths: Sequence[str]) -> None:
        """These had changed since the last snapshot, by ways that torch does not count."""
        self._restless.update(paths)

    def again(self) -> None:
        """The next snapshot is copied at its boundary."""
        self._once = True

    def _steady(self, plan: Plan) -> list[int]:
        steady = [
            i
            for i, aside in enumerate(plan.steady)
            if aside and _bytes(plan, i) >= _LEAST_BYTES and _counted(plan.sources[i], *KINDS)
        ]
        if self._restless:
            steady = [i for i in steady if path(plan, i) not in self._restless]
        return steady

    def _resting(self, plan: Plan, arena: int) -> list[int]:
        layout, versions = self._in_image.get(arena, (None, {}))
        if layout is not plan.layout:
            return []
        return [
            i
            for i, version in versions.items()
            if plan.sources[i]._version == version and path(plan, i) not in self._restless
        ]


def path(plan: Plan, i: int) -> str:
    """The table's name of the i-th tensor that is copied."""
    return _entry(plan, i).path


def _counted(tensor: Tensor, *kinds: str) -> bool:
    """Whether it is on such a device, and torch counts its changes: not of those made in inference mode."""
    return tensor.device.type in kinds and not tensor.is_inference()


def _bytes(plan: Plan, i: int) -> int:
    return _entry(plan, i).bytes


def _entry(plan: Plan, i: int) -> TensorEntry:
    return plan.layout.entries[plan.layout.copied[i]]
