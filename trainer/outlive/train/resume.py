"""What a checkpoint gave this life, piece by piece, until the loop goes on from it."""

from collections.abc import Mapping
from typing import Any

from outlive.errors import Damaged, StateError
from outlive.store.layout import CheckpointId
from outlive.train import environment, rng
from outlive.train.imported import completed
from outlive.train.joint import Joint
from outlive.train.link import Given
from outlive.train.sharing import doubt, reseed, shared_anew
from outlive.train.snapshot import moved_out, read_part
from outlive.train.tracked import HINT, Tracked
from outlive.train.trees import revived


class Resume:
    """A checkpoint that is being resumed from. Objects may come to claim their state one by one."""

    def __init__(self, given: Given) -> None:
        self.checkpoint = CheckpointId(given.packet.life, given.packet.step)
        parts = given.parts
        self.world = len(parts)
        """How many ranks saved it."""
        self._ranks = given.ranks
        rank = 0 if given.ranks is None else given.ranks.rank
        now = 1 if given.ranks is None else given.ranks.world
        saved = completed(read_part(Joint(given.arena.view, parts), rank % self.world))
        try:
            self.steps: int = saved["steps"]
            self.values: dict[str, Any] = revived(saved["state"])
            self.loops = shared_anew(revived(saved["loops"]), before=self.world, now=now)
            self._rng = saved["rng"]
            self._environment: Mapping[str, str] = saved["environment"]
            self._objects: dict[str, Any] = dict(saved["objects"])
        except (KeyError, TypeError) as why:
            raise Damaged(f"checkpoint {self.checkpoint} lacks a part of a run's state: {why}") from None
        self._hyperparameters = dict(self._objects)

    @property
    def unclaimed(self) -> list[str]:
        """Objects in the checkpoint that nothing in this process has claimed so far."""
        return list(self._objects)

    def check_names(self, *, objects: Mapping[str, object], values: Mapping[str, object]) -> None:
        """An object must not have become a plain value meanwhile, nor the reverse."""
        found = [
            f"{name}: a plain value in the checkpoint, an object here"
            for name in objects
            if name in self.values
        ]
        found += [
            f"{name}: an object in the checkpoint, a plain value here"
            for name in values
            if name in self._objects
        ]
        if found:
            raise StateError("the checkpoint does not fit this code:\n" + "\n".join(found), hint=HINT)

    def claim(self, tracked: Tracked) -> list[str]:
        """Restore whatever of `tracked` is still unclaimed; the names of it."""
        mine = {name: tree for name, tree in self._objects.items() if name in tracked}
        tracked.restore(mine)
        for name in mine:
            del self._objects[name]
        # Building a scheduler wrote into the groups of an optimizer that was restored before it.
        tracked.restore_groups(self._hyperparameters)
        return list(mine)

    def restore_rng(self) -> list[str]:
        """Set every random generator as it was; why that may not have been possible in full."""
        reasons = rng.restore(self._rng) if self._rng else []  # of an imported model there is none
        if self._ranks is not None and self._ranks.rank >= self.world:
            reseed(self.checkpoint, self._ranks.rank)
        return reasons

    def doubts(self) -> list[str]:
        """What is other than in the life that saved this."""
        shared = doubt(self._ranks, before=self.world) if self._rng else []
        return shared + environment.differences(self._environment, environment.describe())

    def detach(self) -> None:
        """The loop has gone on: the memory may be overwritten, and hyperparameters are the loop's again."""
        self._hyperparameters = {}
        self._objects = moved_out(self._objects)
