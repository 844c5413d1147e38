"""Random states there and back, and honest words where that cannot be."""

from typing import Any

import numpy
import pytest
import torch

from outlive.errors import Damaged
from outlive.train import environment, rng
from outlive.train.values import Encoder, dump
from outlive.train.values_read import decode, load


def written(state: dict[str, Any]) -> dict[str, Any]:
    encoder = Encoder()
    document = encoder.encode(state, at="rng")
    encoder.check()
    read: dict[str, Any] = decode(load(dump(document)), [])
    return read


def test_through_a_document() -> None:
    """All generators draw the same again after their state was written and read."""
    state = written(rng.capture())
    first = (numpy.random.rand(3).tolist(), torch.rand(3).tolist())
    assert rng.restore(state) == []
    assert (numpy.random.rand(3).tolist(), torch.rand(3).tolist()) == first


def test_devices_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with the random states of devices that are not here says so, and restores the rest."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    state = {**written(rng.capture()), "cuda": [bytes(16)] * 99}
    assert rng.restore(state) == ["saved with the random state of 99 cuda device(s), here are 0"]


def test_another_kind_of_numpy_generator() -> None:
    """numpy's global generator may have been exchanged; its state then fits nothing here, which is said."""
    state = written(rng.capture())
    state["numpy"]["bit_generator"] = "PCG64"
    assert rng.restore(state) == ["numpy's global generator is of another kind than when this was saved"]


def test_differences_of_the_environment() -> None:
    """What is other than when it was saved is told in words; what is equal is not."""
    facts = environment.describe()
    assert environment.differences(facts, facts) == []
    saved = {**facts, "torch": "2.4.0", "threads": "64"}
    assert environment.differences(saved, facts) == [
        f"torch {facts['torch']} instead of 2.4.0",
        f"{facts['threads']} CPU threads instead of 64",
    ]


@pytest.mark.parametrize(
    ("generator", "state"),
    [
        ("python", (3, (1, 2), None)),
        ("numpy", ("MT19937", numpy.zeros(624, numpy.uint32), 10**8, 0, 0.0)),
        ("numpy", {"bit_generator": "MT19937", "state": {"key": numpy.zeros(624), "pos": 10**8}}),
        ("numpy", {"bit_generator": "MT19937"}),
        ("torch", b"short"),
        ("torch", None),
    ],
)
def test_what_is_no_random_state_is_damaged(generator: str, state: object) -> None:
    """Somebody else may have written the checkpoint: no trace, and nothing read outside of numpy's state."""
    good = rng.capture()
    with pytest.raises(Damaged):
        rng.restore({**good, generator: state})
    assert rng.restore(good) == []
