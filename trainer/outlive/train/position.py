"""Where a script is in its loops, as plain values.

A script is taken to run the same loops in the same order in each life. So a loop is known by its turn: the
n-th in its scope, which is one epoch, or the script outside of all epochs. A loop that is made inside the
body of another has no turn, since how often it has come depends on the batch: it is an evaluation now and
then, or a companion, a second loader made anew whenever it ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from outlive.errors import StateError
from outlive.train.carry import Values

Tree: TypeAlias = dict[str, Any]


@dataclass(slots=True, kw_only=True, eq=False)
class Loop:
    """One loop over batches."""

    data: str = ""
    seed: int | None = None
    """None until it has begun."""
    start: Values = field(default_factory=dict)
    delivered: int = 0
    place: Any = None
    finished: bool = False
    aged: bool = False
    """Made inside another loop's body, which is over."""
    outlived: bool = False
    """And asked for batches after that: it is a companion of the other, not a part of one body."""

    inner: bool = False
    """Made inside another loop's body."""
    read_place: Callable[[], Any] | None = None
    """While it runs in this life. The members below are this life's, too."""
    waiting: bool = False
    """Saved by an earlier life, and not taken up yet."""
    suspended: bool = False
    """Its last batch is being worked on."""
    chance: "Scope | None" = None
    """Where the body was begun in which this may be taken up at the latest."""
    here: int = 0
    """Batches delivered in this life."""

    @property
    def begun(self) -> bool:
        return self.seed is not None and not self.finished

    @property
    def lasts(self) -> bool:
        """Whether a later body may ask it again: one did so already, or none has had the occasion."""
        return self.outlived or not (self.aged or (self.waiting and self.chance is not None))

    def deliver(self) -> None:
        """Note a batch that is handed out now."""
        self.delivered += 1
        self.here += 1
        self.suspended = True
        if self.aged:
            self.outlived = True

    def state(self) -> Tree:
        """Plain values."""
        place = self.place if self.read_place is None else self.read_place()
        names = ("data", "seed", "start", "delivered", "aged", "outlived")
        return {**{name: getattr(self, name) for name in names}, "place": place}


@dataclass(slots=True, kw_only=True, eq=False)
class Epochs:
    """One loop over epochs."""

    epoch: int = 0
    """The epoch that is running, or would be next."""
    inside: bool = False
    ended: bool = False
    """Left for good, by a break."""
    scope: "Scope" = field(default_factory=lambda: Scope())
    waiting: bool = False

    def state(self) -> Tree:
        scope = self.scope.state() if self.inside else None
        return {"epoch": self.epoch, "inside": self.inside, "ended": self.ended, "scope": scope}


@dataclass(slots=True, kw_only=True, eq=False)
class Scope:
    """The loops of one epoch, or those outside of all epochs."""

    turns: list[Loop | Epochs] = field(default_factory=list)
    inner: list[Loop] = field(default_factory=list)
    """Those made inside the body of another, while they last."""
    taken: int = 0
    """How many turns this life has come to."""

    def next_loop(self, data: str) -> Loop:
        """The loop whose turn it is."""
        loop = self._next(Loop)
        if not isinstance(loop, Loop):
            raise _other_order(self.taken, "epochs()", "batches()")
        loop.data = loop.data or data
        return loop

    def next_epochs(self) -> Epochs:
        """The loop over epochs whose turn it is."""
        epochs = self._next(Epochs)
        if not isinstance(epochs, Epochs):
            raise _other_order(self.taken, "batches()", "epochs()")
        return epochs

    def _next(self, kind: type[Loop] | type[Epochs]) -> Loop | Epochs:
        if self.taken == len(self.turns):
            self.turns.append(kind())
        self.taken += 1
        return self.turns[self.taken - 1]

    @property
    def busy(self) -> bool:
        """Whether this is inside the body of one of its loops."""
        return any(isinstance(turn, Loop) and turn.suspended for turn in self.turns)

    @property
    def is_begun(self) -> bool:
        """Whether one of its loops is in the middle."""
        return any(isinstance(turn, Loop) and turn.begun for turn in self.turns)

    def companion(self, data: str) -> Loop | None:
        """The loop of an earlier life that one made now, inside a body, goes on with; if there is one.

        One that was made in the very body that was saved is gone on with in the next body only: if it was an
        evaluation, another comes later, and begins afresh.
        """
        for loop in self.inner:
            if loop.waiting and loop.data == data and (loop.outlived or not loop.aged):
                return loop
        return None

    def age(self, giver: Loop, place: "Scope") -> None:
        """Note that the loop `giver` of the scope `place` begins a body. What others made is aged now.

        What an earlier life has made is so only at the second body of this life, when it has had its chance.
        """
        for loop in self.inner:
            if not loop.waiting or (loop.chance is not None and (giver.here > 1 or place is not loop.chance)):
                loop.aged = True
            loop.chance = place

    def last_turn(self) -> Loop | Epochs | None:
        """After which turn the script goes on, if none of them is in the middle."""
        done = [turn for turn in self.turns if isinstance(turn, Epochs) or turn.finished]
        return done[-1] if done else None

    def state(self) -> Tree:
        """Plain values. Finished loops are counted, as there may be any number of them."""
        turns: list[int | Tree] = []
        for turn in self.turns:
            if isinstance(turn, Epochs):
                turns.append({"epochs": turn.state()})
            elif not turn.finished:
                turns.append({"loop": turn.state()})
            elif turns and isinstance(turns[-1], int):
                turns[-1] += 1
            else:
                turns.append(1)
        return {"turns": turns, "inner": [loop.state() for loop in self.inner if loop.lasts]}


def read_scope(tree: Tree) -> Scope:
    """The scope that `state` described."""
    scope = Scope(inner=[_read_loop(each, inner=True) for each in tree["inner"]])
    for turn in tree["turns"]:
        if isinstance(turn, int):
            scope.turns += [Loop(finished=True, waiting=True) for _ in range(turn)]
        elif "loop" in turn:
            scope.turns.append(_read_loop(turn["loop"]))
        else:
            saved = dict(turn["epochs"])
            inner = saved.pop("scope")
            epochs = Epochs(**saved, waiting=True)
            if inner is not None:
                epochs.scope = read_scope(inner)
            scope.turns.append(epochs)
    return scope


def frontier(scope: Scope) -> Scope:
    """The innermost scope that the script was in."""
    turn = running(scope)
    return scope if turn is None else frontier(turn.scope)


def running(scope: Scope) -> Epochs | None:
    """The loop over epochs in whose body the script is."""
    return next((turn for turn in scope.turns if isinstance(turn, Epochs) and turn.inside), None)


def _read_loop(tree: Tree, *, inner: bool = False) -> Loop:
    return Loop(**tree, inner=inner, waiting=True)


def _other_order(turn: int, saved: str, found: str) -> StateError:
    return StateError(
        f"loop {turn} of the script is {found} now, and was {saved} when the checkpoint was made",
        hint="loops are found again by their order; restore it, or start a new run",
    )
