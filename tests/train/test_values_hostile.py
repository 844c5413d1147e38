"""Values that outlive did not write: somebody else may write to the bucket, too."""

import collections
import datetime
import decimal
import fractions
import json
import random
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import Damaged, StateError
from outlive.train import kinds
from outlive.train.values import Encoder, dump
from outlive.train.values_read import decode, load

TAGS = ["$tensor", "$bytes", "$array", "$scalar", "$dict", "$ordered", "$counter", "$float", "$int"]
TAGS += ["$tuple", "$set", "$frozenset", "a", "$tree", "$again", *kinds.TAGS]
documents = st.recursive(
    st.one_of(st.none(), st.integers(), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(TAGS), inner, max_size=2),
)


@given(documents)
def test_hostile_documents(document: Any) -> None:
    """A document that outlive did not write is damaged, and never another error."""
    try:
        decode(load(json.dumps(document).encode()), [])
    except Damaged:
        return


HONEST: list[Any] = [
    {"a": [1, 2.5, 2**70, b"x", (1, 2), {3, 4}, {1: 2}, collections.deque([1], 3), fractions.Fraction(1, 3)]},
    [numpy.arange(6.0).reshape(2, 3), numpy.float32(1.5), range(1, 9, 2), 1 + 2j, decimal.Decimal("1.5")],
    [
        datetime.datetime(2026, 12, 1),
        datetime.timedelta(1, 2, 3),
        collections.OrderedDict(a=1),
        bytearray(b"z"),
    ],
    [
        random.Random(1),
        numpy.random.RandomState(2),
        torch.Generator(),
        numpy.random.Generator(numpy.random.SFC64()),
    ],
]
STRANGE: list[Any] = [None, True, -1, 10**12, 2**63, "", "-1", "1e999999999", "A" * 999, [], {}, [10**6] * 3]


def changed(node: Any, draw: random.Random, *, how_often: float) -> Any:
    """The same document, with something else in some places."""
    if draw.random() < how_often:
        return draw.choice(STRANGE)
    if isinstance(node, dict):
        tag = {key: f"${draw.choice(TAGS)[1:]}" for key in node if draw.random() < how_often}
        return {tag.get(key, key): changed(value, draw, how_often=how_often) for key, value in node.items()}
    if isinstance(node, list):
        return [changed(item, draw, how_often=how_often) for item in node if draw.random() > how_often]
    if isinstance(node, str) and node and draw.random() < how_often:
        at = draw.randrange(len(node))
        return node[:at] + draw.choice(["", "0", "-", '"', "99999999"]) + node[at + 1 :]
    return node


@pytest.mark.parametrize("honest", HONEST, ids=range(len(HONEST)))
def test_an_honest_document_that_was_changed(honest: Any) -> None:
    """Whatever stands wherever in it, it is read or refused, and nothing is used up or broken."""
    document = json.loads(dump(Encoder().encode(honest, at="x")))
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(2000):
        raw = json.dumps(changed(document, draw, how_often=draw.choice([0.01, 0.05, 0.2]))).encode()
        try:
            decode(load(raw), [])
        except (Damaged, StateError):  # a generator of a device that is not here
            continue


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("RandomState", ("state", "pos")),
        ("MT19937", ("state", "pos")),
        ("Philox", ("buffer_pos",)),
    ],
)
@pytest.mark.parametrize("value", [-1, 625, 10**8, -(10**8), None, 0.5])
def test_a_generator_that_would_draw_from_strange_memory(
    kind: str, place: tuple[str, ...], value: object
) -> None:
    """numpy believes where a state points, and reads or crashes there: such a state is damaged instead."""
    made = (
        numpy.random.RandomState(1)
        if kind == "RandomState"
        else numpy.random.Generator(getattr(numpy.random, kind)(1))
    )
    document: Any = Encoder().encode(made, at="x")
    name, state = document["$generator"]
    state = json.loads(state)
    holder = state
    for key in place[:-1]:
        holder = holder[key]
    assert 0 <= holder[place[-1]] <= 624
    holder[place[-1]] = value
    with pytest.raises(Damaged):
        decode({"$generator": [name, json.dumps(state)]}, [])


@given(st.binary(max_size=60))
def test_hostile_bytes(raw: bytes) -> None:
    """Bytes that are no document are damaged."""
    try:
        load(raw)
    except Damaged:
        return


def test_deep_documents_are_damaged() -> None:
    """Nesting that would exhaust the stack is refused."""
    with pytest.raises(Damaged):
        load(b"[" * 200_000)
    with pytest.raises(Damaged):
        decode(load(b"[" * 900 + b"]" * 900), [])
