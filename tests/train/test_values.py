"""The closed set of types: what goes in comes out, bit for bit, and nothing else goes in."""

import collections
import json
import math
import struct
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import Damaged, StateError
from outlive.train import values
from outlive.train.values import Encoder
from outlive.train.values_read import decode, load

DTYPES = ["?", "<i1", "<u2", "<i4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]


def doubles() -> st.SearchStrategy[float]:
    """Every bit pattern of a double, NaN payloads included."""
    return st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack(">d", raw)[0])


def arrays() -> st.SearchStrategy[Any]:
    def build(dtype: str, shape: tuple[int, ...], fill: bytes) -> Any:
        size = math.prod(shape) * numpy.dtype(dtype).itemsize
        raw = (fill * (size // len(fill) + 1))[:size]
        return numpy.frombuffer(bytearray(raw), dtype).reshape(shape)

    shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    return st.builds(build, st.sampled_from(DTYPES[1:]), shapes, st.binary(min_size=1, max_size=16))


def first(array: Any) -> Any:
    """A numpy scalar, if the array holds any."""
    return array.reshape(-1)[0] if array.size else None


keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.tuples(st.integers(), st.text())
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), doubles(), st.text(), st.binary(), arrays(), arrays().map(first)
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.text(), inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4).map(collections.OrderedDict),
        st.dictionaries(keys, st.integers(), max_size=4).map(collections.Counter),
    )


def same(one: Any, other: Any) -> bool:
    """Equal in type and in every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and not isinstance(one, numpy.generic):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, numpy.ndarray | numpy.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return (
            all(map(same, one, other))
            and all(map(same, one.values(), other.values()))
            and len(one) == len(other)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def there_and_back(value: Any) -> Any:
    encoder = Encoder()
    raw = values.dump(encoder.encode(value, at="x"))
    encoder.check()
    return decode(load(raw), encoder.tensors)


@given(st.recursive(scalars, containers, max_leaves=12))
def test_round_trip(value: Any) -> None:
    """Whatever the set holds comes back the same, in type, order and bits."""
    assert same(there_and_back(value), value)


TAGS = ["$tensor", "$bytes", "$array", "$scalar", "$dict", "$ordered", "$counter", "$float", "$int"]
TAGS += ["$tuple", "$set", "$frozenset", "a"]
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


def test_huge_numbers() -> None:
    """Whole numbers have no size limit, in either direction."""
    for number in (0, -1, 2**63, -(2**63) - 1, 2**64, 10**6000, -(10**6000)):
        assert there_and_back(number) == number


def test_types_that_become_plain() -> None:
    """A torch.Size is a tuple, a defaultdict a dict, an array in Fortran order one in C order."""
    assert same(there_and_back(torch.Size([2, 3])), (2, 3))
    assert same(there_and_back(collections.defaultdict(int, a=1)), {"a": 1})
    array = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
    assert there_and_back(array).tolist() == array.tolist()


def test_big_endian_arrays() -> None:
    """The bytes in the document are little-endian whatever they were in memory."""
    assert there_and_back(numpy.array([1, 2], ">i4")).tolist() == [1, 2]


class Odd:
    """Of no known type."""


class Loud(int):
    """A subclass would come back as what it is not."""


def test_everything_refused_at_once_with_its_path() -> None:
    """Each object outside the set is named by the path that leads to it, all in one error."""
    Point = collections.namedtuple("Point", "x y")
    encoder = Encoder()
    encoder.encode({"param_groups": [{"foo": Odd(), "lr": 0.1}], "n": Loud(3)}, at="optimizer")
    encoder.encode({"p": Point(1, 2), "d": torch.float32, ("a", 1): Odd()}, at="run.state")
    encoder.encode(numpy.zeros(2, "i4,f4"), at="s")
    encoder.encode(numpy.array([None]), at="o")
    encoder.encode("\ud800", at="t")
    with pytest.raises(StateError) as refused:
        encoder.check()
    lines = str(refused.value).splitlines()
    assert lines[0] == f"optimizer.param_groups[0]['foo']: object of type {__name__}.Odd"
    assert lines[1] == f"optimizer.n: object of type {__name__}.Loud"
    assert lines[2].startswith("run.state.p: object of type ")
    assert lines[3] == "run.state.d: object of type torch.dtype"
    assert lines[4].startswith("run.state[('a', 1)]: object of type ")
    assert [line.partition(":")[0] for line in lines[5:]] == ["s", "o", "t"]
    assert "state_dict" in refused.value.hint


def test_many_problems_are_cut_short() -> None:
    """Twenty lines are enough to start with."""
    encoder = Encoder()
    encoder.encode([Odd() for _ in range(1000)], at="x")
    with pytest.raises(StateError) as refused:
        encoder.check()
    assert str(refused.value).splitlines()[-1] == "and 980 more"


def test_cycles_and_depth() -> None:
    """What contains itself, or is nested without end, is refused and does not hang."""
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    encoder = Encoder()
    encoder.encode(cycle, at="cycle")
    encoder.encode(deep, at="deep")
    assert encoder.problems[0] == "cycle[0]['again']: contains itself"
    assert encoder.problems[1].endswith(": nested deeper than 100")


def test_shared_is_no_cycle() -> None:
    """One list in two places is written twice."""
    shared = [1]
    assert there_and_back([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.eye(2).to_sparse(), "layout"),
        (torch.empty(2, device="meta"), "meta"),
        (torch.nn.LazyLinear(2).weight, "lazy"),
    ],
)
def test_tensors_that_cannot_be_kept(tensor: torch.Tensor, why: str) -> None:
    """A tensor whose bits are not all there is to it is refused, with a reason."""
    encoder = Encoder()
    encoder.encode(SimpleNamespace(t=tensor).__dict__, at="model")
    assert encoder.problems[0].startswith("model.t: ")
    assert why in encoder.problems[0]
