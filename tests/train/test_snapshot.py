"""Tensors into an image and back: every dtype, every shape, every way to lie in memory."""

import gc
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outlive.errors import Damaged
from outlive.store.chunks import cut
from outlive.store.table import TensorTable
from outlive.train.layout import lay_out
from outlive.train.snapshot import moved_out, plan, read
from outlive.train.tensors import DTYPES, Named, bits, dtype_name
from outlive.train.trees import revived


def through(state: Any) -> Any:
    made = plan({"state": state})
    image = memoryview(bytearray(b"\xff" * made.layout.size))
    made.copy_into(made.layout.windows(image))
    return revived(read(image, table=made.layout.table, notes=made.values)["state"])


def random_bits(dtype: torch.dtype, *shape: int) -> Tensor:
    """Any bit pattern, NaN payloads included; a bool is 0 or 1."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    tensor = torch.empty(shape, dtype=dtype)
    raw = bits(tensor)
    raw.copy_(torch.randint(-(2**62), 2**62, raw.shape).to(raw.dtype))
    return tensor


def same(one: Tensor, other: Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and torch.equal(bits(one), bits(other))
    )


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name: str) -> None:
    """Whatever dtype torch knows comes back bit for bit, empty and without dimensions too."""
    for shape in [(), (1,), (0,), (3, 0), (5, 7)]:
        tensor = random_bits(DTYPES[name], *shape)
        assert same(through({"t": tensor})["t"], tensor)


def test_strides() -> None:
    """A dense tensor that is not row-major keeps its strides; a view of a larger one becomes row-major."""
    last = random_bits(torch.float32, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert same(through([last])[0], last)
    turned = random_bits(torch.int16, 3, 4).t()
    assert same(through([turned])[0], turned)
    part = random_bits(torch.float64, 6, 6)[1:4, ::2]
    assert same(through([part])[0], part.contiguous())
    expanded = random_bits(torch.float32, 1).expand(4)
    assert same(through([expanded])[0], expanded.contiguous())


def test_lazy_conjugates() -> None:
    """A conjugate that is only marked as one is saved as what it means."""
    number = torch.tensor([1 + 2j])
    back = through([number, number.conj(), number.conj().imag])
    assert torch.equal(back[0], number)
    assert torch.equal(back[1], torch.tensor([1 - 2j]))
    assert torch.equal(back[2], torch.tensor([-2.0]))


def test_shared_memory_is_stored_once_and_shared_again() -> None:
    """Two names for one tensor are one tensor again; a view of a part is a tensor of its own."""
    whole = torch.arange(32.0)
    made = plan({"state": [whole, whole, whole[:16]]})
    assert made.layout.size == 128 + 64
    back = through([whole, whole, whole[:16]])
    back[0].zero_()
    assert back[1].sum() == 0
    assert torch.equal(back[2], torch.arange(16.0))


def test_frozen_tensors_lie_first_and_change_no_chunk_of_the_rest() -> None:
    """What never changes makes chunks of its own, wherever in the state it comes."""
    named = [
        Named(tensor=torch.ones(10), path="hot", group=1),
        Named(tensor=torch.ones(10), path="cold", group=0),
        Named(tensor=torch.ones(10), path="warm", group=1),
    ]
    layout = lay_out(named)
    table = TensorTable.decode(layout.table)
    assert [entry.path for entry in table.tensors] == ["cold", "hot", "warm"]
    assert cut(table) == [(0, 64), (64, 128)]


def test_tied_to_what_changes_is_not_frozen() -> None:
    """One piece of memory has one group, the one of its liveliest name."""
    shared = torch.ones(4)
    layout = lay_out([Named(tensor=shared, path="a", group=0), Named(tensor=shared, path="b", group=1)])
    assert [entry.group for entry in TensorTable.decode(layout.table).tensors] == [1, 1]


def test_the_layout_is_reused_until_a_tensor_looks_different() -> None:
    """The plan of the image is made once; new values don't change it, a new shape does."""
    first = plan({"state": [torch.zeros(3)]})
    second = plan({"state": [torch.ones(3)]}, first.layout)
    third = plan({"state": [torch.ones(4)]}, second.layout)
    assert second.layout is first.layout
    assert third.layout is not first.layout


def test_gaps_are_zero() -> None:
    """Equal tensors give equal images, whatever the memory held before."""
    made = plan({"state": [torch.ones(3), torch.ones(5, dtype=torch.uint8)]})
    images = []
    for filling in (b"\x00", b"\xff"):
        image = bytearray(filling * made.layout.size)
        made.layout.clear_gaps(memoryview(image))
        made.copy_into(made.layout.windows(memoryview(image)))
        images.append(image)
    assert images[0] == images[1]


def test_paths() -> None:
    """Each tensor is named once in the table, by the keys that lead to it."""
    state = {"a": [torch.ones(1), {"b": torch.zeros(1)}], 1: torch.ones(2), "1": torch.ones(3)}
    table = TensorTable.decode(plan({"state": state}).layout.table)
    paths = [entry.path for entry in table.tensors]
    assert paths == ["run.state/a/0", "run.state/a/1/b", "run.state/1", "run.state/1#2"]


def test_an_image_that_is_overwritten() -> None:
    """What was moved out of an image no longer depends on it."""
    made = plan({"state": {"t": torch.ones(4)}})
    image = bytearray(made.layout.size)
    made.copy_into(made.layout.windows(memoryview(image)))
    state = moved_out(read(memoryview(image), table=made.layout.table, notes=made.values))
    image[:] = bytes(len(image))
    assert torch.equal(revived(state)["state"]["t"], torch.ones(4))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b'"shape":[4]', b'"shape":[3]'),
        (b'"dtype":"float32"', b'"dtype":"float31"'),
        (b'"dtype":"float32"', b'"dtype":"float64"'),
        (b'"device"', b'"strides":[9999999999],"device"'),
    ],
)
def test_tables_that_lie(was: bytes, now: bytes) -> None:
    """A table that fits no tensor is damage, not a crash and not a huge allocation."""
    made = plan({"state": {"t": torch.ones(4)}})
    image = memoryview(bytearray(made.layout.size))
    table = made.layout.table.replace(was, now)
    assert table != made.layout.table
    with pytest.raises(Damaged):
        read(image, table=table, notes=made.values)


@given(st.data())
def test_any_dense_strides(data: st.DataObject) -> None:
    """Every order of dimensions of a dense tensor survives."""
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).permute(order)
    back = through([tensor])[0]
    assert torch.equal(back, tensor)
    assert tensor.numel() == 0 or back.stride() == tensor.stride() or back.is_contiguous()


def test_dtype_names() -> None:
    """The names in the table are torch's own."""
    assert all(dtype_name(dtype) == name for name, dtype in DTYPES.items())


def test_what_is_moved_out_holds_nothing_of_the_image() -> None:
    """State that nothing has claimed yet must not keep the memory of the whole checkpoint."""
    made = plan({"state": {"weights": torch.arange(8.0)}})
    memory = bytearray(made.layout.size)
    image = memoryview(memory)
    made.copy_into(made.layout.windows(image))
    moved = moved_out(read(image, table=made.layout.table, notes=made.values))
    del made, image
    gc.collect()
    memory.append(0)  # BufferError if anything still looked into it
    assert torch.equal(moved["state"]["weights"].view, torch.arange(8.0))
