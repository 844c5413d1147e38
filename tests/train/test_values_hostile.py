"""Values that outlive did not write: somebody else may write to the bucket, too."""

import json
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import Damaged
from outlive.train import kinds
from outlive.train.values import Encoder
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
