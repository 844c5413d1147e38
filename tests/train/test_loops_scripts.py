"""Scripts have more than one loop. Each is found again by its turn, or known to have none."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from outlive.errors import StateError
from train.loop_lives import Life, Noisy, check, unbroken


def loader(size: int = 6, batch_size: int = 2, **more: Any) -> DataLoader[Tensor]:
    """A small one."""
    return DataLoader(Noisy(size), batch_size=batch_size, shuffle=True, **more)


def warm_up_then_main(life: Life) -> None:
    """Two loops in each epoch, and random numbers drawn between them."""
    warm, main = loader(4), loader()
    for epoch in life.epochs(2):
        for batch in life.batches(warm):
            life.step("warm", epoch, batch)
        torch.rand(3)
        for batch in life.batches(main):
            life.step("main", epoch, batch)


def without_epochs(life: Life) -> None:
    """The script counts nothing but its steps."""
    data = loader()
    while True:
        for batch in life.batches(data):
            if life.steps == 8:
                return
            life.step(batch)


def before_and_after(life: Life) -> None:
    """Loops outside of the epochs, before and after; several loops over epochs; one inside another."""
    data = loader(4)
    for batch in life.batches(data):
        life.step("before", batch)
    for epoch in life.epochs(2):
        for inner in life.epochs(2):
            for batch in life.batches(data):
                life.step(epoch, inner, batch)
    for epoch in life.epochs(1):
        for batch in life.batches(data):
            life.step("again", epoch, batch)
    for batch in life.batches(data):
        life.step("after", batch)


def two_at_once(life: Life) -> None:
    """Of two loaders the shorter one decides."""
    short, long = loader(4), loader(10)
    for epoch in life.epochs(2):
        for one, other in zip(life.batches(long), life.batches(short), strict=False):
            life.step(epoch, one, other)


def evaluations(life: Life) -> None:
    """Evaluates after some steps, not to the end, and keeps the iterator."""
    train, test = loader(8), loader(6)
    for epoch in life.epochs(2):
        for batch in life.batches(train):
            if life.steps % 3 == 1:
                some = life.batches(test)
                life.note("tested", next(some), next(some))
            life.step(epoch, batch)


def evaluations_by_break(life: Life) -> None:
    """Evaluates in a loop that is left by break, between the steps and between the epochs."""
    train, test = loader(8), loader(6)

    def evaluate() -> None:
        for count, batch in enumerate(life.batches(test)):
            life.note("tested", batch)
            if count == 1:
                break

    for epoch in life.epochs(2):
        for batch in life.batches(train):
            if life.steps % 3 == 1:
                evaluate()
            life.step(epoch, batch)
        torch.rand(1)
        for _ in life.batches(test):
            torch.rand(1)


def companion(life: Life) -> None:
    """A second loader is made anew whenever it has ended, and goes on from one epoch to the next."""
    train, other = loader(8), loader(6)
    others: Iterator[Any] = iter(life.batches(other))
    for epoch in life.epochs(3):
        for batch in life.batches(train):
            try:
                more = next(others)
            except StopIteration:
                others = iter(life.batches(other))
                more = next(others)
            life.step(epoch, batch, more)


def early_stop(life: Life) -> None:
    """Leaves an epoch, and then all of them, by break."""
    data, rest = loader(), loader(4)
    for epoch in life.epochs(5):
        for batch in life.batches(data):
            if life.steps == 5 * epoch + 2:
                break
            life.step(epoch, batch)
        if epoch == 2:
            break
    for batch in life.batches(rest):
        life.step("rest", batch)


def shared_generator(life: Life) -> None:
    """Two loaders share the generator that orders them, and each loop is left half way."""
    rng = torch.Generator().manual_seed(8)
    one, other = loader(6, generator=rng), loader(8, generator=rng)
    for epoch in life.epochs(2):
        for data in (one, other):
            for count, batch in enumerate(life.batches(data)):
                life.note(batch)
                if count == 1:
                    break
        for batch in life.batches(one):
            life.step(epoch, batch)


def made_anew(life: Life) -> None:
    """Each epoch makes its loader, whose generator always begins the same."""
    for epoch in life.epochs(4):
        for batch in life.batches(loader(generator=torch.Generator().manual_seed(1))):
            life.step(epoch, batch)


SCRIPTS = [
    warm_up_then_main,
    without_epochs,
    before_and_after,
    two_at_once,
    evaluations,
    evaluations_by_break,
    companion,
    early_stop,
    shared_generator,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_goes_on_at_every_boundary(script: Callable[[Life], None]) -> None:
    """Whatever its loops, the next life does what was left to do, and nothing else."""
    check(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_life_of_a_life_goes_on(script: Callable[[Life], None]) -> None:
    """A life may end at its first boundary, and the next at its first, and so on to the end."""
    whole = unbroken(script)
    life = Life(break_after=1).run(script)
    lines = life.lines
    for _ in range(len(whole.saved)):
        life = Life(life.saved[-1], break_after=1).run(script)
        lines += life.lines
        if not life.saved:
            break
    assert whole.lines == lines


def test_a_loader_that_is_made_anew_begins_anew() -> None:
    """Known from the second epoch on; before that, its generator is taken to go on."""
    check(made_anew, places=range(5, 16))


def test_an_epoch_begins_with_its_own_random_numbers() -> None:
    """What the script draws before its first loop is what it drew in the life that was saved there."""

    def script(life: Life) -> None:
        data = loader()
        for _ in life.epochs(3):
            life.note(torch.rand(1))
            for batch in life.batches(data):
                life.step(batch)

    check(script, places=(0, 4, 8))


def test_what_is_done_between_two_loops_is_done_again() -> None:
    """From where the random numbers stood when it was saved."""
    times = 2

    def script(life: Life) -> None:
        for batch in life.batches([1, 2]):
            life.note(batch)
        for _ in range(times):
            life.step("between")

    whole = unbroken(script)
    times = 1
    again = Life(whole.saved[0]).run(script)
    assert (again.lines, again.continued) == (whole.lines[-1:], 1)


def test_more_epochs_than_before_train_on() -> None:
    """A finished run goes on when it is asked for more, also if it ended with a test."""
    count = 2

    def script(life: Life) -> None:
        train, test = loader(), loader(4)
        for epoch in life.epochs(count):
            for batch in life.batches(train):
                life.step(epoch, batch)
        for batch in life.batches(test):
            life.note("tested", batch)
        life.step()

    short = unbroken(script)
    count = 4
    trained_on = Life(short.saved[-1]).run(script)
    whole = unbroken(script)
    assert len(trained_on.lines) == len(whole.lines) - 6
    assert [line[:4] for line in trained_on.lines] == [line[:4] for line in whole.lines[6:]]


def test_fewer_epochs_than_before_end_the_loop() -> None:
    """A life that is asked for less than there was does nothing more in that loop."""
    whole = unbroken(warm_up_then_main)

    def script(life: Life) -> None:
        for _ in life.epochs(1):
            raise AssertionError("there is no such epoch left")
        life.note("after")

    life = Life(whole.saved[-1]).run(script)
    assert (life.lines, life.continued) == (["['after']"], 1)


def test_state_before_anything_goes_on_is_the_state_that_was_loaded() -> None:
    """A life that is broken before it reaches its place loses nothing."""
    for saved in unbroken(companion).saved:
        assert Life(saved, break_after=1).state() == saved.loops


def test_another_order_of_loops_is_refused() -> None:
    """A script whose loops came in another order can't be gone on with, and is told."""
    saved = unbroken(warm_up_then_main).saved[-1]
    with pytest.raises(StateError, match=r"loop 1 of the script is batches\(\) now, and was epochs\(\)"):
        Life(saved).batches([1])


def test_a_state_of_another_version_is_refused() -> None:
    """And so is one that nobody can read."""
    loops = Life().loops
    with pytest.raises(StateError, match="version 9"):
        loops.load({"version": 9})
    with pytest.raises(StateError, match="can't be read"):
        loops.load({"version": 1, "scope": {"turns": [{}], "inner": []}, "sources": []})


def test_the_epoch_is_known() -> None:
    """Inside, between and after."""
    life = Life()
    seen = [life.loops.epoch]
    for _ in life.epochs(2):
        seen.append(life.loops.epoch)
    assert [*seen, life.loops.epoch] == [None, 0, 1, None]


def test_whether_the_script_has_gone_on_is_known() -> None:
    """Until then the global generators are the script's; a life without loops has no such moment."""

    def script(life: Life) -> None:
        life.note(life.loops.pending)
        for batch in life.batches([1, 2]):
            life.note(life.loops.pending)
            life.step(batch)

    whole = unbroken(script)
    assert Life(whole.saved[0]).run(script).lines[:2] == ["[True]", "[False]"]
    empty = Life()
    empty.step()
    assert not Life(empty.saved[0]).loops.pending


def test_between_two_loops_is_known() -> None:
    """What is done there is done again by a life that begins there, unlike what is done with a batch."""
    life = Life()
    seen = [life.loops.between]
    for _ in life.epochs(1):
        seen.append(life.loops.between)
        seen += [life.loops.between for _ in life.batches([1])]
        seen.append(life.loops.between)
    assert seen == [False, True, False, True]


def test_what_is_left_has_a_length() -> None:
    """So that a progress bar knows how much there is to do in this life."""

    def script(life: Life) -> None:
        batches = life.batches(loader())
        life.note(len(batches))  # type: ignore[arg-type]
        for batch in batches:
            life.step(batch)

    whole = unbroken(script)
    assert whole.lines[0] == "[3]"
    assert Life(whole.saved[0]).run(script).lines[0] == "[2]"


class Failing(Noisy):
    """Can't read one index."""

    def __getitem__(self, index: int) -> Tensor:
        if index == 4:
            raise OSError("a disk is gone")
        return super().__getitem__(index)


def test_an_error_while_fetching_leaves_the_state_at_the_boundary() -> None:
    """Known while the error passes, until the script goes on with something else."""
    life = Life()

    def script(life: Life) -> None:
        data = Failing(6) if life.saved == [] else Noisy(6)
        for batch in life.batches(DataLoader(data, batch_size=2)):
            assert not life.loops.fetching
            life.step(batch)

    with pytest.raises(OSError, match="a disk is gone"):
        life.run(script)
    assert life.loops.fetching
    assert len(life.lines) == 2
    assert life.state() == life.saved[-1].loops
    for _ in life.batches([]):
        pass
    assert not life.loops.fetching
