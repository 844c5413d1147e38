from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import Damaged
from outlive.store.document import DOCUMENT_BYTES, decode, encode, float_json, printable, stamp


def test_deep_nesting_is_damage_and_no_crash() -> None:
    """A document of brackets can't exhaust the interpreter's stack."""
    raw = b'{"format":"outlive/x","version":1,"a":' + b"[" * 90 + b"]" * 90 + b',"p":"' + b"." * 5000 + b'"}'
    assert decode(raw, "x", where="it").names()
    for depth in (1_000, 100_000):
        deep = b"[" * depth + b" " * (12 * depth)
        with pytest.raises(Damaged):
            decode(deep, "x", where="it")


def test_a_small_document_can_not_fill_the_memory() -> None:
    """A document of empty lists, which would take twenty times its size, is refused before it is parsed."""
    with pytest.raises(Damaged, match="too many"):
        decode(b"[" + b"[]," * 1_000_000 + b"[]]", "x", where="it")


def test_a_document_beyond_the_limit_is_refused() -> None:
    """Nobody parses more than 64 MiB."""
    with pytest.raises(Damaged, match="too large"):
        decode(b" " * (DOCUMENT_BYTES + 1), "x", where="it")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe{}",
        '{"format":"outlive/x","version":1}'.encode("utf-16"),
        b'{"format":"outlive/y","version":1}',
        b'{"format":"outlive/x"}',
        b'{"format":"outlive/x","version":true}',
        b'{"format":"outlive/x","version":1,"n":NaN}',
        b'{"format":"outlive/x","version":1,"n":-Infinity}',
        b'{"format":"outlive/x","version":1,"n":' + b"9" * 100_000 + b"}",
        b'{"format":"outlive/x","version":1} ,',
    ],
)
def test_what_is_no_document_is_damaged(raw: bytes) -> None:
    """Anything but an object of the right format is refused in one way."""
    with pytest.raises(Damaged):
        decode(raw, "x", where="it")


def test_a_newer_version_says_what_to_do() -> None:
    """Who meets a newer format learns to install a newer program."""
    with pytest.raises(Damaged, match="version 2") as caught:
        decode(b'{"format":"outlive/x","version":2}', "x", where="it")
    assert "install" in caught.value.hint


@given(st.floats())
def test_every_float_survives(value: float) -> None:
    """A loss that became NaN can still be saved, and is NaN afterwards."""
    read = decode(encode("x", {"n": float_json(value)}), "x", where="it").number("n")
    assert read == value or (read != read and value != value)


@given(st.text())
def test_any_text_becomes_printable(text: str) -> None:
    """File names in no encoding at all can be put into a document and read back."""
    clean = printable(text)
    assert decode(encode("x", {"t": clean}), "x", where="it").text("t") == clean


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_times_survive_to_the_millisecond(moment: datetime) -> None:
    """A time is read back as it was, cut to milliseconds."""
    read = decode(encode("x", {"at": stamp(moment)}), "x", where="it").time("at")
    assert read == moment.replace(microsecond=moment.microsecond // 1000 * 1000)
