"""A month of a run at full speed: what is kept stays bounded, whatever happens in between.

    python tests/fault/long_life.py --saves 3000

Lives follow one another, some of them go back on purpose; every save is followed by a prune, and now and
then the store fails in the middle of one. The clock is the store's, moved by hand: a save every quarter of an
hour. After each life the newest checkpoint is restored, and the objects are counted against what the keep
policy and the grace of a day allow. Exit status 1 if anything is lost or grows. Prints the seed; ``--seed``
repeats it.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from fakes.checkpoints import Clock, begin, keys, restored, snapshot
from fakes.stores import Wrapped
from outlive.errors import Unavailable
from outlive.objects.interface import ObjectStore
from outlive.objects.memory import MemoryStore
from outlive.store.newest import checkpoints
from outlive.store.prune import prune
from outlive.store.retention import Keep

_T = TypeVar("_T")

BETWEEN_SAVES = timedelta(minutes=15)
GRACE_SAVES = 24 * 4
"""Chunks stay for a day."""
SAVES_A_LIFE = 80
STEPS_A_SAVE = 10
KEEP = Keep(last=3, every_steps=2000, best="loss")
FROZEN = bytes(range(256)) * 64
UNTIDY = 25
"""Objects that a prune which failed may leave for the next one."""


@dataclass(slots=True)
class Tally:
    """What was seen so far; ``problems`` empty means every promise held."""

    saves: int = 0
    lives: int = 0
    rewinds: int = 0
    failed_prunes: int = 0
    most_objects: int = 0
    most_bytes: int = 0
    problems: list[str] = field(default_factory=list)


class Unreliable(Wrapped):
    """Fails now and then while something is deleted: before, or after it took effect."""

    def __init__(self, store: ObjectStore, draw: random.Random) -> None:
        super().__init__(store)
        self._draw = draw

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        chance = self._draw.random() if action == "delete" else 1.0
        if chance < 0.05:
            raise Unavailable("the store went away")
        done = request()
        if chance < 0.1:
            raise Unavailable("the answer was lost")
        return done


def live(store: ObjectStore, clock: Clock, tally: Tally, draw: random.Random, *, saves: int) -> None:
    """One life: it resumes, or goes back on purpose, and saves until it ends."""
    order = checkpoints(store, "gpt")
    rewind = len(order) > 1 and draw.random() < 0.15
    owner = begin(store, "gpt", back_to=order[1] if rewind else None)
    tally.lives += 1
    tally.rewinds += rewind
    step = owner.parent.step if owner.parent else 0
    for _ in range(saves):
        step += STEPS_A_SAVE
        clock.advance(BETWEEN_SAVES)
        metrics = {"loss": 1 / step + draw.random() / 100}
        content = f"{owner.life.nonce} {step}".encode() * 100
        committed = owner.commit(snapshot(step, FROZEN, content, metrics=metrics))
        tally.saves += 1
        try:
            prune(store, "gpt", KEEP, owner=owner)
        except Unavailable:
            tally.failed_prunes += 1
        if checkpoints(store, "gpt")[0] != committed.manifest.id:
            tally.problems.append(f"step {step} was acknowledged and is not the newest")


def count(store: MemoryStore, owner_steps: int, tally: Tally) -> None:
    """Compare what is stored with what may be."""
    objects = keys(store, "gpt/")
    held = sum(info.size for info in store.list("gpt/"))
    tally.most_objects, tally.most_bytes = max(tally.most_objects, len(objects)), max(tally.most_bytes, held)
    kept = KEEP.last * 2 + 2 + owner_steps // (KEEP.every_steps or 1) + 1
    # A manifest and a chunk each; the chunks of a day; two claims a life; what all share; what was left.
    allowed = 2 * kept + GRACE_SAVES + 2 * tally.lives + 3 + UNTIDY
    if len(objects) > allowed:
        tally.problems.append(f"{len(objects)} objects after {tally.saves} saves, {allowed} allowed")
    found = restored(store)
    if found is None or not found[1].startswith(FROZEN):
        tally.problems.append(f"nothing restores after {tally.saves} saves")


def month(saves: int, draw: random.Random) -> Tally:
    """So many saves, over as many lives as that takes."""
    clock = Clock()
    real = MemoryStore(clock=clock)
    store = Unreliable(real, draw)
    tally = Tally()
    while tally.saves < saves:
        live(store, clock, tally, draw, saves=min(draw.randint(1, SAVES_A_LIFE), saves - tally.saves))
        count(real, checkpoints(real, "gpt")[0].step, tally)
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--saves", type=int, default=3000)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    tally = month(options.saves, random.Random(options.seed))  # noqa: S311
    what = f"{tally.saves} saves in {tally.lives} lives, {tally.rewinds} rewound"
    size = f"at most {tally.most_objects} objects and {tally.most_bytes / 1e6:.1f} MB"
    spent = time.monotonic() - began
    print(
        f"{what}, {tally.failed_prunes} prunes failed; {size}, {len(tally.problems)} problems, {spent:.0f} s"
    )
    print("\n".join(tally.problems))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
