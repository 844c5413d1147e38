"""Which tensors are copied beside the training, by what this training was seen to do."""

from collections.abc import Callable, Sequence

from outlive.train.copying import Move
from outlive.train.snapshot import Plan
from outlive.train.watch import differing

WORTH_BYTES = 4 * 1024 * 1024
"""Less than this is copied at the boundary in about the time that a thread takes to start."""
_MOST_LOST = 2


class Hiding:
    """Begins with a trial: the first snapshot is copied at the boundary, and compared by every byte just
    before the next step of an optimizer. What differs then is changed outside of steps, and is always
    copied at the boundary.
    """

    def __init__(self, say: Callable[[str], None], *, wanted: bool) -> None:
        self._say = say
        self._wanted = wanted
        self._tried = False
        self._trial: tuple[Sequence[Move], Sequence[str]] | None = None
        self._restless: set[str] = set()
        self._lost = 0
        self._once = False

    def beside(self, plan: Plan, *, stop: bool) -> list[bool]:
        """For each tensor that is copied, whether that may go on after the boundary."""
        steady = self._steady(plan)
        at_once, self._once = self._once, False
        if stop or at_once or not self._tried:
            return [False] * len(steady)
        return steady

    def taken(self, plan: Plan, moves: Sequence[Move]) -> None:
        """A snapshot was copied at its boundary: a trial, if there was none yet."""
        if self._tried:
            return
        steady = self._steady(plan)
        paths = [plan.layout.entries[i].path for i in plan.layout.copied]
        chosen = [i for i, aside in enumerate(steady) if aside]
        self._trial = ([moves[i] for i in chosen], [paths[i] for i in chosen]) if chosen else None

    def before_step(self) -> None:
        """An optimizer is about to change what it changes."""
        if self._trial is not None:
            (moves, paths), self._trial = self._trial, None
            self._restless.update(paths[i] for i in differing(moves))
            self._tried = True

    def lost(self, paths: Sequence[str], *, total: int) -> None:
        """A snapshot is of no use: of `total` tensors these may have been changed while they were copied.

        All of them at once is an exchange, for an evaluation perhaps: nothing about these tensors.
        """
        self._lost += 1
        self._once = True
        if len(paths) < total:
            self._restless.update(paths)
        if self._lost == _MOST_LOST:
            self._wanted = False
            few = ", ".join(list(paths)[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            self._say(
                f"{few} changed after run.step() and before the next optimizer step, so from now on the "
                "training waits for every copy (make such changes before run.step())"
            )

    def _steady(self, plan: Plan) -> list[bool]:
        if not self._wanted:
            return [False] * len(plan.steady)
        entries, copied = plan.layout.entries, plan.layout.copied
        steady = [
            aside and entries[i].path not in self._restless
            for aside, i in zip(plan.steady, copied, strict=True)
        ]
        size = sum(entries[i].bytes for aside, i in zip(steady, copied, strict=True) if aside)
        return steady if size >= WORTH_BYTES else [False] * len(steady)
