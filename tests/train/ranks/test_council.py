"""The ranks agree on one step, in whatever order their threads run."""

import random
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from outlive.train.boundary import Want
from outlive.train.council import ANSWER_SECONDS, Agreed, Chair, Council, Hall


@dataclass
class Rank:
    """A training that does a step when it is told to, and never goes on before it knows the verdict."""

    council: Council
    dead: bool = False
    saved: dict[int, int] = field(default_factory=dict)
    stopped: bool = False

    def step(self) -> None:
        council = self.council
        agreed = council.agreed
        if agreed is not None and council.step >= agreed.step:
            if agreed.round not in council._verdicts:
                return  # it waits
            if council.go(agreed):
                self.saved[agreed.round] = council.step
                self.stopped = agreed.stop
            council.served()
        if not self.stopped:
            council.step += 1


class World:
    """Some ranks around one job's store, and a clock that only the test moves."""

    def __init__(self, size: int, *, every: int = 0) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.permits: list[tuple[int, Agreed]] = []
        store = HashStore()
        self.ranks = []
        for number in range(size):
            hall = Hall(
                rank=number,
                world=size,
                every=lambda: every,
                step_seconds=lambda: 0.05,
                say=self.said.append,
                permit=partial(self._permitted, number),
            )
            seat = Chair if number == 0 else Council
            self.ranks.append(Rank(seat(hall, store, clock=lambda: self.now)))

    def _permitted(self, rank: int, agreed: Agreed) -> None:
        self.permits.append((rank, agreed))

    def run(self, draw: random.Random, *, turns: int) -> None:
        """So many turns of threads and trainings, in a random order; trainings stay within two steps."""
        for _ in range(turns):
            self.now += 0.01
            rank = draw.choice([rank for rank in self.ranks if not rank.dead])
            slowest = min(other.council.step for other in self.ranks)
            if draw.random() < 0.6:
                rank.council.tick()
            elif rank.council.step <= slowest + 1:
                rank.step()

    def rounds(self) -> dict[int, set[int]]:
        """For each round, the steps at which it was served."""
        found: dict[int, set[int]] = {}
        for rank in self.ranks:
            for number, step in rank.saved.items():
                found.setdefault(number, set()).add(step)
        return found


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_a_wish_of_any_rank_is_one_step_for_all(size: int, seed: int) -> None:
    """Whichever rank wishes, at whatever moment: every rank saves, and all at the same step."""
    draw = random.Random(seed)
    world = World(size)
    for _ in range(5):
        world.run(draw, turns=draw.randrange(40))
        draw.choice(world.ranks).council.wish(Want(reason="notice"))
    world.run(draw, turns=2000)
    rounds = world.rounds()
    assert rounds
    assert all(len(steps) == 1 for steps in rounds.values())
    assert all(set(rank.saved) == set(rounds) for rank in world.ranks)


@pytest.mark.parametrize("seed", range(20))
def test_a_stop_that_comes_during_a_round_is_not_lost(seed: int) -> None:
    """All ranks are told to stop by a signal, at different moments, some in the middle of a round."""
    draw = random.Random(seed)
    world = World(3)
    world.ranks[0].council.wish(Want(reason="hand"))
    for rank in draw.sample(world.ranks, 3):
        world.run(draw, turns=draw.randrange(30))
        rank.council.wish(Want(reason="signal", stop=True))
    world.run(draw, turns=3000)
    assert all(rank.stopped for rank in world.ranks)
    assert len({rank.council.step for rank in world.ranks}) == 1


def test_a_rank_that_does_not_answer_is_named_and_holds_up_nobody() -> None:
    """A dead rank makes the verdict a no within a bounded time; who waits for it goes on."""
    draw = random.Random(1)
    world = World(3)
    world.run(draw, turns=50)
    world.ranks[2].dead = True
    world.ranks[1].council.wish(Want(reason="notice"))
    world.run(draw, turns=int(ANSWER_SECONDS / 0.01) + 200)
    assert any("rank 2 does not answer" in line for line in world.said)
    assert world.rounds() == {}
    assert world.permits == []


class Gone(Exception):
    """What torch raises when the store's host has gone."""


@pytest.mark.parametrize(("over", "lines"), [(False, 1), (True, 0)])
def test_a_store_that_is_gone_is_told_while_the_training_goes_on(over: bool, lines: int) -> None:
    """Nobody saves the ranks from then on, so they say it; when their loop is over it is no news."""
    world = World(2)
    council = world.ranks[1].council

    def gone(keys: list[str]) -> bool:
        raise Gone("Connection reset by peer\nand a long trace")

    council._store = SimpleNamespace(check=gone)
    if over:
        council.leave()
    council._run()
    said = [line for line in world.said if "no more saves" in line]
    assert len(said) == lines
    assert all("(Connection reset by peer)" in line for line in said)
    assert council.over is not None


def test_an_interval_in_steps_is_agreed_before_its_step() -> None:
    """Every tenth step is saved, at that very step, since the ranks are asked ahead of it."""
    world = World(2, every=20)
    world.run(random.Random(3), turns=6000)
    steps = sorted(step for steps in world.rounds().values() for step in steps)
    assert len(steps) > 3
    assert all(step % 20 == 0 for step in steps)
    assert all(len(found) == 1 for found in world.rounds().values())


def test_a_loop_that_is_over_ends_the_rounds() -> None:
    """A rank whose loop has ended answers so; no step is agreed that it will not reach."""
    draw = random.Random(4)
    world = World(2)
    world.ranks[1].council.leave()
    world.ranks[0].council.wish(Want(reason="hand"))
    world.run(draw, turns=400)
    assert world.rounds() == {}
    assert world.permits == []


def test_no_memory_on_a_node_postpones_the_save() -> None:
    """While a node's memory is in use no step is agreed, and the wish is not lost."""
    draw = random.Random(5)
    world = World(2)
    free = [False]
    hall = world.ranks[1].council.hall
    world.ranks[1].council.hall = Hall(
        rank=1, world=2, memory=lambda stop: None if free[0] else "busy", permit=hall.permit
    )
    world.ranks[0].council.wish(Want(reason="hand"))
    world.run(draw, turns=600)
    assert world.rounds() == {}
    free[0] = True
    world.run(draw, turns=1200)
    assert len(world.rounds()) == 1
