"""The closed set of types: what goes in comes out, bit for bit, and nothing else goes in."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import random
import struct
import zoneinfo
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import StateError
from outlive.train import values
from outlive.train.trees import refilled, revived
from outlive.train.values import Encoder
from outlive.train.values_read import decode, load

BITS = [getattr(numpy.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")]
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
    return decode(load(raw), list(encoder.tensors.values()))


@given(st.recursive(scalars, containers, max_leaves=12))
def test_round_trip(value: Any) -> None:
    """Whatever the set holds comes back the same, in type, order and bits."""
    assert same(there_and_back(value), value)


def test_huge_numbers() -> None:
    """Whole numbers have no size limit, in either direction."""
    for number in (0, -1, 2**63, -(2**63) - 1, 2**64, 10**6000, -(10**6000)):
        assert there_and_back(number) == number


def rolled(generator: Any) -> Any:
    """One that is in the middle of its numbers, with half a word left over."""
    generator.integers(3, dtype="u1")
    generator.standard_normal(5)
    return generator


def drawn(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(5, generator=generator).tolist()
    return [float(generator.random()) for _ in range(5)]


def torch_generator() -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(3)
    torch.rand(7, generator=generator)
    return generator


@pytest.mark.parametrize(
    "generator",
    [
        *(rolled(numpy.random.Generator(bits(5))) for bits in BITS),
        numpy.random.RandomState(4),
        random.Random(6),
        torch_generator(),
    ],
    ids=lambda generator: f"{type(generator).__name__}",
)
def test_generators(generator: Any) -> None:
    """A generator of one's own comes back as one of its kind that draws the numbers that come next."""
    back = there_and_back(generator)
    assert type(back) is type(generator)
    assert drawn(back) == drawn(generator)


KEPT = [
    torch.Size([2, 3]),
    collections.defaultdict(list, a=[1]),
    collections.defaultdict(None, {(1, None): 2}),
    collections.deque([1, [2]], maxlen=5),
    collections.deque(),
    bytearray(b"\x00x"),
    complex(-0.0, math.inf),
    range(3, 30, 4),
    slice(None, -1, 2),
    decimal.Decimal("-0.10"),
    fractions.Fraction(-2, 6),
    pathlib.Path("runs") / "a",
    datetime.date(2026, 11, 30),
    datetime.time(23, 59, 1, 5),
    datetime.timedelta(days=-1, microseconds=7),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(minutes=-330))),
    -0.0,
    True,
    10**40,
    {None: 1, 2: 3, (4, "x"): 5, True: 6, 1.5: 7, b"k": 8, "$x": 9},
    numpy.float32(0.1),
    numpy.array(7, "i2"),
    numpy.bool_(True),
]


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_kinds(value: Any) -> None:
    """Each type of the set comes back as that type, to the last detail that its repr shows."""
    back = there_and_back(value)
    assert same(back, value)
    assert repr(back) == repr(value)


def test_arrays_keep_their_order() -> None:
    """Sums over a Fortran array add in another order: it comes back as one."""
    array = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
    back = there_and_back(array)
    assert back.flags.f_contiguous
    assert back.tolist() == array.tolist()
    assert there_and_back(numpy.arange(8)[::2]).tolist() == [0, 2, 4, 6]


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
    assert lines[1] == f"optimizer.n: object of type {__name__}.Loud (keep int() of it)"
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


def test_one_object_in_two_places() -> None:
    """What can change and lies in two places is one object afterwards; what looks alike is not."""
    shared, same_looks = [1], [[2], [2]]
    generator = random.Random(1)
    tree = {"a": shared, "b": [shared, *same_looks], "c": {"again": shared}}
    tree |= {"d": generator, "e": (generator,)}
    back = there_and_back(tree)
    assert back["a"] is back["b"][0] is back["c"]["again"]
    assert back["b"][1] is not back["b"][2]
    assert back["d"] is back["e"][0]
    fresh = revived(back)
    fresh["a"].append(5)
    assert fresh["c"]["again"] == [1, 5]
    assert back["a"] == [1]


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


class Tag(str):
    __slots__ = ()


@dataclasses.dataclass
class Settings:
    rate: float = 0.1


REFUSED = [
    (Colour.RED, "keep its .value"),
    (Tag("x"), "keep str() of it"),
    (Point(1, 2), "keep its _asdict()"),
    (Settings(), "keep dataclasses.asdict() of it"),
    (memoryview(b"x"), "keep bytes() of it"),
    (collections.defaultdict(lambda: 0), "keep dict() of it"),
    (datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")), "keep its isoformat()"),
    (iter([1]), "keep a count"),
    (len, "object of type builtin_function_or_method"),
    (Settings, "code is no state"),
    (numpy.array([1], ">i4"), "byte order"),
    (numpy.array(["x"]), "keep its tolist()"),
    (numpy.array(["2026-01-01"], "M8[D]"), "astype('int64')"),
    (numpy.zeros(2, "i4,f4"), "keep its fields"),
    (numpy.zeros(2).view(numpy.recarray), "keep"),
    (numpy.longdouble(1), "keep its item()"),
    (random.SystemRandom(), "it has no state"),
    (torch.default_generator, "always kept"),
    (numpy.random.mtrand._rand, "always kept"),
    (torch.nn.Linear(1, 1), "hand it to attach()"),
    ({random.Random(1)}, "a set of things that can change"),
]


@pytest.mark.parametrize(("value", "what"), REFUSED, ids=lambda part: type(part).__name__)
def test_refused_with_advice(value: Any, what: str) -> None:
    """What could not come back as what it was is refused, with what to keep instead."""
    encoder = Encoder()
    encoder.encode({"x": value}, at="run.state")
    assert len(encoder.problems) == 1
    assert encoder.problems[0].startswith("run.state.x: ")
    assert what in encoder.problems[0]


def test_filled_in_place() -> None:
    """What the script holds already is filled where it is; what is of another kind is replaced."""
    generator, names, table = numpy.random.default_rng(1), [1], {"inner": [0], "gone": 1}
    array, weight = numpy.zeros(2), torch.zeros(2, requires_grad=True)
    given = {
        "rng": generator,
        "names": names,
        "table": table,
        "array": array,
        "w": weight,
        "n": 3,
        "new": [7],
    }
    later = numpy.random.default_rng(2)
    later.random(9)
    saved = {
        "rng": later,
        "names": [4, 5],
        "table": {"inner": [6], "more": 2},
        "array": numpy.ones(2),
        "w": torch.nn.Parameter(torch.ones(2)),
        "n": [1],
    }
    filled = refilled(given, saved)
    assert all(filled[name] is given[name] for name in ("rng", "names", "table", "array", "w", "new"))
    assert filled["table"]["inner"] is table["inner"]
    assert generator.random() == later.random()
    assert (names, table, filled["n"]) == ([4, 5], {"inner": [6], "more": 2}, [1])
    assert array.tolist() == weight.tolist() == [1, 1]
    assert weight.requires_grad


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
