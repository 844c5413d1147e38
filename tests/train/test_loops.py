"""Every kind of data goes on at every boundary as if nothing had happened."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    SequentialSampler,
)

from outlive.errors import ConfigError
from train.loop_kinds import MAPS, OTHERS, Counting, Lazy, OwnNoise, StatefulStream, generator, two_epochs
from train.loop_lives import Life, Noisy, check, unbroken


@pytest.mark.parametrize("kind", MAPS)
def test_a_loader_goes_on_at_every_boundary(kind: str) -> None:
    """Without workers: the same batches, augmentations and global generators at every boundary."""
    check(two_epochs(MAPS[kind]))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_data_goes_on_at_every_boundary(kind: str) -> None:
    """Iterable data sets, loaders of another kind, lists, functions: as exact as they can be."""
    check(two_epochs(OTHERS[kind]))


def test_an_infinite_sampler_is_left_and_found_again() -> None:
    """The order has no end; the loop is left by break, and the next epoch begins another."""

    def script(life: Life) -> None:
        data = Noisy()
        loader = DataLoader(data, batch_size=2, sampler=Lazy(data))
        for epoch in life.epochs(2):
            for batch in life.batches(loader):
                if life.steps == 4 * epoch + 4:
                    break
                life.step(batch)

    check(script)


def test_set_epoch_is_the_scripts() -> None:
    """What the script sets before a loop counts, and not what an earlier life left there."""

    def script(life: Life) -> None:
        data = Noisy()
        sampler: DistributedSampler[Tensor] = DistributedSampler(data, 2, 1)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
        for epoch in life.epochs(3):
            sampler.set_epoch(epoch)
            for batch in life.batches(loader):
                life.step(batch)

    check(script)


def test_a_generator_that_the_script_seeds_each_epoch_is_the_scripts() -> None:
    """The same for a generator."""

    def script(life: Life) -> None:
        rng = generator(0)
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True, generator=rng)
        for epoch in life.epochs(3):
            rng.manual_seed(100 + epoch)
            for batch in life.batches(loader):
                life.step(batch)

    check(script)


def test_a_setting_of_a_sampler_may_change_between_lives() -> None:
    """A number that a sampler never changes is taken from the script, not from the checkpoint."""
    sampler = Counting(Noisy())

    def script(life: Life) -> None:
        loader = DataLoader(Noisy(), batch_size=4, sampler=sampler)
        for batch in life.batches(loader):
            life.step(batch)

    whole = unbroken(script)
    sampler = Counting(Noisy())
    sampler.window = 9
    Life(whole.saved[0]).run(script)
    assert (1, 9) == (sampler.epoch, sampler.window)


def test_no_data_is_read_again() -> None:
    """To go on after two of three batches, only the third is read."""
    data = Noisy(12)

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(data, batch_size=4, shuffle=True)):
            life.step(batch)

    whole = unbroken(script)
    data.reads = 0
    Life(whole.saved[1]).run(script)
    assert data.reads == 4


def test_a_stateful_stream_reads_nothing_again() -> None:
    """An iterable data set with a state_dict is set to its place; another is read again, and that said."""
    data = StatefulStream()

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(data, batch_size=2)):
            life.step(batch)

    whole = unbroken(script)
    data = StatefulStream()
    assert Life(whole.saved[2]).run(script).said == []
    assert data.reads == 1

    streams = unbroken(two_epochs(OTHERS["stream"]))
    assert Life(streams.saved[2]).run(two_epochs(OTHERS["stream"])).said == [
        "reading 2 batches of Stream by 3 with 0 workers again, to find where the run was"
    ]


def test_the_users_loader_is_not_touched() -> None:
    """Its attributes stay as they were, and it can be iterated beside."""
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
    before = dict(vars(loader))
    unbroken(lambda life: life.step(*life.batches(loader)))
    assert dict(vars(loader)) == before
    assert len(list(loader)) == 3


def test_random_data_does_not_disturb_the_training() -> None:
    """The global generators stand where they do with data that draws nothing: a loop draws one number."""

    class Still(Noisy):
        def __getitem__(self, index: int) -> Tensor:
            return torch.tensor([index])

    def rngs(data: Noisy) -> list[str]:
        def script(life: Life) -> None:
            loader = DataLoader(
                data, batch_size=3, sampler=Lazy(data, 9) if data.size == 10 else SequentialSampler(data)
            )
            for _ in life.batches(loader):
                life.step()

        return unbroken(script).lines

    assert rngs(Noisy()) == rngs(Still(9))


def test_a_data_sets_own_generator_stays_where_it_is() -> None:
    """It may serve the training as well; and with workers it would not advance here either."""
    data = OwnNoise()
    before = repr(data.rng.bit_generator.state)
    unbroken(lambda life: life.step(*life.batches(DataLoader(data, batch_size=2))))
    assert before == repr(data.rng.bit_generator.state)


def test_two_batches_never_get_the_same_random_numbers() -> None:
    """Each batch of each epoch is augmented in its own way."""
    seen: list[float] = []

    def script(life: Life) -> None:
        loader = DataLoader(Noisy(6), batch_size=2)
        for _ in life.epochs(3):
            for batch in life.batches(loader):
                seen.extend(batch[:, 1].tolist())

    unbroken(script)
    assert len(set(seen)) == 18


def test_one_shot_iterators_are_refused() -> None:
    """A later life could not go on in them, so the script learns it at once, and what to do."""
    life = Life()
    with pytest.raises(ConfigError, match="only once") as refused:
        life.batches(batch for batch in [1, 2])
    assert "lambda" in refused.value.hint
    with pytest.raises(ConfigError, match="can't be iterated"):
        life.batches(7)


def test_out_of_order_workers_are_put_in_order() -> None:
    """Which batches were seen must not depend on speed; the user is told."""
    loader = DataLoader(Noisy(), batch_size=4)
    loader.in_order = False
    life = unbroken(lambda life: life.step(*life.batches(loader)))
    assert life.said == ["in_order=False is not kept: the batches would depend on which worker is faster"]


def test_changed_data_is_said() -> None:
    """A data set of another size has another order: the run goes on, and says so."""
    size = 10

    def script(life: Life) -> None:
        for batch in life.batches(DataLoader(Noisy(size), batch_size=4)):
            life.step(batch)

    whole = unbroken(script)
    size = 12
    assert Life(whole.saved[0]).run(script).said == [
        "the data has changed, so its order has: Noisy[10] by BatchSampler(SequentialSampler, 4) is "
        "Noisy[12] by BatchSampler(SequentialSampler, 4) now"
    ]
