"""Packets: what is sent is what arrives, and nothing else gets through."""

import json
import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import ProtocolError
from outlive.staging import messages
from outlive.staging.messages import (
    MAX_PACKET_BYTES,
    Accepted,
    ArenaOffer,
    Committed,
    Ended,
    Failed,
    Fresh,
    Ground,
    Hello,
    Message,
    Permit,
    Refused,
    Restored,
    Room,
    SnapshotTaken,
    Welcome,
    decode,
    encode,
)

EXAMPLES: list[Message] = [
    Hello(pid=7, versions={"torch": "2.13.0"}, life=3, nonce="ab"),
    Welcome(run="gpt", life=3, nonce="9f", mode="exec", store="/runs"),
    Fresh(),
    Restored(life=2, step=5, epoch=None, bytes=64, table=1, values=2, source="memory", seconds=0.25),
    Refused(message="no", hint="go"),
    ArenaOffer(arena=1, bytes=1 << 40),
    SnapshotTaken(
        number=1, arena=0, step=9, epoch=0, reason="hand", bytes=1, table=2, values=3, metrics={"l": 1.5}
    ),
    Accepted(number=1),
    Committed(number=1, life=3, step=9, bytes=10, sent=4, seconds=0.1),
    Failed(number=1, message="full", hint="free some"),
    Room(bytes=4096),
    Ground(arena=1, size=1 << 40, offset=4096, bytes=100),
    Permit(number=3, arena=1),
    Ended(outcome="stopped", step=9),
]


def test_every_packet_has_an_example() -> None:
    """The list below is complete."""
    assert {type(example) for example in EXAMPLES} == set(get_args(Message))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.packet)
def test_round_trip(message: Message) -> None:
    """What is decoded equals what was encoded."""
    assert decode(encode(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.packet)
def test_members_that_are_missing_or_wrong(message: Message) -> None:
    """A packet without a member that has no default, or with one of a wrong type, is refused."""
    document = json.loads(encode(message))
    wrongs: list[object] = [[], {"a": []}, -1, True, 1 << 63, "\ud800", math.inf]
    for name in document.keys() - {"packet"}:
        for wrong in wrongs:
            if (name, wrong) == ("stop", True) or (type(document[name]), wrong) == (float, 1 << 63):
                continue
            with pytest.raises(ProtocolError):
                decode(json.dumps({**document, name: wrong}).encode())
        rest = {key: value for key, value in document.items() if key != name}
        try:
            decode(json.dumps(rest).encode())
        except ProtocolError as error:
            assert name in str(error)  # noqa: PT017 - some members have a default


def test_unknown_members_are_ignored() -> None:
    """A newer side may say more than this one understands."""
    assert decode(b'{"packet":"accepted","number":4,"colour":"red"}') == Accepted(number=4)


def test_metrics_that_are_not_finite_are_left_out() -> None:
    """A loss of NaN does not cost the save."""
    message = SnapshotTaken(
        number=1,
        arena=0,
        step=9,
        reason="interval",
        bytes=1,
        table=2,
        values=3,
        metrics={"loss": math.nan, "lr": 0.5, "norm": math.inf},
    )
    decoded = decode(encode(message))
    assert isinstance(decoded, SnapshotTaken)
    assert decoded.metrics == {"lr": 0.5}


def test_too_long() -> None:
    """A packet beyond the limit is refused on both sides, with a hint for who made it."""
    with pytest.raises(ProtocolError) as caught:
        encode(Refused(message="x" * MAX_PACKET_BYTES))
    assert caught.value.hint
    with pytest.raises(ProtocolError):
        decode(b" " * (MAX_PACKET_BYTES + 1))


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_rubbish(raw: bytes) -> None:
    """Any bytes are a message or a ProtocolError."""
    try:
        decode(raw)
    except ProtocolError:
        return


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([message.packet for message in EXAMPLES]), st.data())
def test_hostile_members(packet: str, data: st.DataObject) -> None:
    """Any JSON in any member is a message or a ProtocolError."""
    kind = messages._KINDS[packet]
    names = list(messages._CHECKS[kind]) or ["none"]
    document = {"packet": packet, **data.draw(st.dictionaries(st.sampled_from(names), _values))}
    try:
        decode(json.dumps(document).encode())
    except ProtocolError:
        return


@pytest.mark.parametrize(
    "raw", [b"[" * 30000, b"1" * 30000, b'{"packet":["hello"]}', b'{"packet":"nobody"}', b"null", b"\xff"]
)
def test_shapes_that_break_parsers(raw: bytes) -> None:
    """Deep nesting, long numbers and other shapes are refused, not crashed on."""
    with pytest.raises(ProtocolError):
        decode(raw)
