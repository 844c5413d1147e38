from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.checkpoints import table_of
from outlive.errors import Damaged
from outlive.store.document import encode
from outlive.store.table import TensorEntry, TensorTable


@given(st.lists(st.integers(0, 500), max_size=20))
def test_a_table_is_read_back_as_it_was(sizes: list[int]) -> None:
    """What is written is read."""
    table = table_of(*sizes)
    assert TensorTable.decode(table.encode()) == table


def test_strides_and_shared_storage_survive() -> None:
    """Tied weights share an offset; a channels-last tensor keeps its strides."""
    one = TensorEntry(
        path="a", dtype="float32", shape=(4, 4), offset=0, bytes=64, device="cuda:0", strides=(1, 4), group=3
    )
    table = TensorTable(bytes=64, tensors=(one, replace(one, path="b")))
    assert TensorTable.decode(table.encode()) == table


def test_pieces_and_owners_survive() -> None:
    """A shard says what it is a piece of, and an entry without bytes who has them."""
    piece = TensorEntry(
        path="a", dtype="float32", shape=(2, 4), offset=0, bytes=32, device="cpu", whole=(5, 4), at=(3, 0)
    )
    elsewhere = TensorEntry(path="b", dtype="float32", shape=(8,), offset=64, bytes=0, device="cpu", owner=3)
    table = TensorTable(bytes=64, tensors=(piece, elsewhere))
    assert TensorTable.decode(table.encode()) == table


GOOD = {"path": "a", "dtype": "uint8", "shape": [64], "offset": 0, "bytes": 64, "device": "cpu", "group": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1},
        {"offset": -64},
        {"offset": 64},
        {"offset": 2**70},
        {"bytes": 65},
        {"bytes": -1},
        {"bytes": True},
        {"bytes": 1.0},
        {"shape": [2**40, 2**40]},
        {"shape": [2**200]},
        {"shape": [0]},
        {"shape": [1]},
        {"shape": [1] * 65},
        {"shape": ["64"]},
        {"shape": [-64]},
        {"strides": [1, 1]},
        {"dtype": "os.system"},
        {"dtype": ""},
        {"device": "cpu; rm"},
        {"path": "x" * 5000},
        {"path": "\ud800"},
        {"path": 3},
        {"group": -1},
        {"group": None},
        {"owner": 1},
        {"owner": -1, "bytes": 0},
        {"global": [128]},
        {"at": [0]},
        {"global": [128], "at": [65]},
        {"global": [128, 1], "at": [0, 0]},
    ],
)
def test_a_table_that_reaches_out_of_its_image_is_refused(change: dict[str, object]) -> None:
    """Whatever a hostile table says about a tensor, it stays inside the image and has a possible shape."""
    entry: dict[str, object] = {**GOOD, **change}
    raw = encode("table", {"bytes": 64, "tensors": [entry]})  # type: ignore[list-item]  # that is the point
    with pytest.raises(Damaged):
        TensorTable.decode(raw)


@pytest.mark.parametrize(
    "second",
    [
        {"offset": 64, "bytes": 64},
        {"offset": 0, "bytes": 64},
        {"offset": 0, "bytes": 128, "group": 1},
        {"offset": 128, "bytes": 64, "group": -1},
    ],
)
def test_tensors_that_overlap_in_part_are_refused(second: dict[str, int]) -> None:
    """Two tensors share all their bytes or none, and groups only count upwards."""
    one = TensorEntry(path="a", dtype="uint8", shape=(128,), offset=0, bytes=128, device="cpu")
    two = replace(one, path="b", shape=(second["bytes"],), **second)  # type: ignore[arg-type]
    with pytest.raises(Damaged):
        TensorTable.decode(TensorTable(bytes=256, tensors=(one, two)).encode())


@given(st.binary(max_size=300))
def test_rubbish_is_damaged_and_nothing_else(raw: bytes) -> None:
    """No bytes make the reader fail in another way."""
    with pytest.raises(Damaged):
        TensorTable.decode(raw)
