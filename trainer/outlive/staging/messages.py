"""The packets between trainer and agent: frozen values, encoded strictly, decoded without trust."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, get_args, get_type_hints

from outlive.errors import ProtocolError

PROTOCOL = 1
MAX_PACKET_BYTES = 32 * 1024

Reason: TypeAlias = Literal["interval", "notice", "signal", "exception", "hand", "finished"]
REASONS: tuple[Reason, ...] = get_args(Reason)
Mode: TypeAlias = Literal["exec", "daemon", "sidecar"]
Outcome: TypeAlias = Literal["finished", "stopped", "exception"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A trainer's first packet. One whose agent died names its life and nonce, and keeps its state."""

    packet: ClassVar[str] = "hello"
    protocol: int = PROTOCOL
    pid: int
    rank: int = 0
    world: int = 1
    local_world: int = 1
    """How many of them are on this machine."""
    versions: Mapping[str, str] = field(default_factory=dict)
    life: int = 0
    nonce: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Who the trainer is now. Comes with the control page."""

    packet: ClassVar[str] = "welcome"
    protocol: int = PROTOCOL
    run: str
    life: int
    nonce: str
    mode: Mode
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """There is nothing to resume from."""

    packet: ClassVar[str] = "fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The checkpoint to resume from. Comes with the image and the notes; the image becomes arena 0."""

    packet: ClassVar[str] = "restored"
    life: int
    step: int
    epoch: int | None = None
    world: int = 1
    """Above 1 the image is that of all ranks, and the notes begin with an index (`parts`)."""
    bytes: int
    table: int
    values: int
    source: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The trainer must not train."""

    packet: ClassVar[str] = "refused"
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaOffer:
    """Memory for snapshots, with its descriptor. The same number again replaces the earlier memory."""

    packet: ClassVar[str] = "arena"
    arena: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """The arena holds a snapshot, and is the agent's until freed. Comes with the notes.

    Metrics that are not finite are left out: JSON has no such numbers.
    """

    packet: ClassVar[str] = "snapshot"
    number: int
    arena: int
    step: int
    epoch: int | None = None
    world: int = 1
    """As in :class:`Restored`."""
    reason: Reason
    bytes: int
    table: int
    values: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    copy_seconds: float = 0.0
    stall_seconds: float = 0.0
    stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The snapshot's bytes are safe from the trainer's death."""

    packet: ClassVar[str] = "accepted"
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The snapshot is a checkpoint."""

    packet: ClassVar[str] = "committed"
    number: int
    life: int
    step: int
    bytes: int
    sent: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The snapshot did not become a checkpoint; training goes on."""

    packet: ClassVar[str] = "failed"
    number: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A rank to the first one of its node: its snapshots are of this size from now on."""

    packet: ClassVar[str] = "room"
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The first rank to another: where in an arena its snapshots go. Comes with the arena."""

    packet: ClassVar[str] = "ground"
    arena: int
    size: int
    """Of the whole arena, in bytes."""
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The first rank to another: its ground in this arena is free for snapshot ``number``."""

    packet: ClassVar[str] = "permit"
    number: int
    arena: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The trainer's last packet."""

    packet: ClassVar[str] = "ended"
    outcome: Outcome
    step: int
    message: str = ""


Message: TypeAlias = (
    Hello
    | Welcome
    | Fresh
    | Restored
    | Refused
    | ArenaOffer
    | SnapshotTaken
    | Accepted
    | Committed
    | Failed
    | Room
    | Ground
    | Permit
    | Ended
)

_KINDS: dict[str, type[Message]] = {kind.packet: kind for kind in get_args(Message)}
_T = TypeVar("_T")


def encode(message: Message) -> bytes:
    """The packet's bytes. ``ProtocolError`` if it is longer than a packet may be."""
    document: dict[str, object] = {"packet": message.packet}
    for item in fields(message):
        value = getattr(message, item.name)
        document[item.name] = _finite(value) if isinstance(value, Mapping) else value
    try:
        raw = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a {message.packet} packet can't be encoded: {error}") from error
    if len(raw) > MAX_PACKET_BYTES:
        raise ProtocolError(
            f"a {message.packet} packet of {len(raw)} bytes is longer than {MAX_PACKET_BYTES}",
            hint="pass fewer metrics to run.step(), or shorter names",
        )
    return raw


def decode(raw: bytes) -> Message:
    """The message in these bytes. ``ProtocolError`` for anything else; unknown members are ignored."""
    if len(raw) > MAX_PACKET_BYTES:
        raise ProtocolError(f"a packet is longer than {MAX_PACKET_BYTES} bytes")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a packet is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolError("a packet is not a JSON object")
    name = document.get("packet")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"a packet of an unknown kind: {str(name)[:40]!r}")
    given: dict[str, Any] = {}
    for item, check in _CHECKS[kind].items():
        if item in document:
            given[item] = check(f"{name}.{item}", document[item])
    try:
        return kind(**given)
    except TypeError as error:
        raise ProtocolError(f"a {name} packet lacks a member: {error}") from error


def _checks(kind: type) -> dict[str, Callable[[str, object], object]]:
    hints = get_type_hints(kind)
    return {item.name: _check_for(hints[item.name]) for item in fields(kind)}


def _check_for(hint: Any) -> Callable[[str, object], object]:
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    choices = get_args(hint)

    def one_of(where: str, value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ProtocolError(f"{where} is none of {', '.join(choices)}")
        return value

    return one_of


def _integer(where: str, value: object) -> int:
    # bool is an int in Python, and a step of `true` would pass otherwise
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ProtocolError(f"{where} is not a whole number from 0 upwards")
    return value


def _optional_integer(where: str, value: object) -> int | None:
    return None if value is None else _integer(where, value)


def _number(where: str, value: object) -> float:
    if type(value) not in (int, float):
        raise ProtocolError(f"{where} is not a number")
    try:
        number = float(cast("float", value))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProtocolError(f"{where} is not a finite number")
    return number


def _seconds(where: str, value: object) -> float:
    number = _number(where, value)
    if number < 0:
        raise ProtocolError(f"{where} is negative")
    return number


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ProtocolError(f"{where} is not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # a lone surrogate can't be written to the journal or to a manifest
        raise ProtocolError(f"{where} is not valid text") from error
    return value


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError(f"{where} is neither true nor false")
    return value


def _mapping(of: Callable[[str, object], _T]) -> Callable[[str, object], dict[str, _T]]:
    def check(where: str, value: object) -> dict[str, _T]:
        if not isinstance(value, dict):
            raise ProtocolError(f"{where} is not an object")
        return {_text(where, key): of(f"{where}.{key}", item) for key, item in value.items()}

    return check


def _finite(mapping: Mapping[str, object]) -> dict[str, object]:
    return {key: item for key, item in mapping.items() if not isinstance(item, float) or math.isfinite(item)}


_BY_TYPE: dict[Any, Callable[[str, object], object]] = {
    int: _integer,
    int | None: _optional_integer,
    float: _seconds,
    str: _text,
    bool: _flag,
    Mapping[str, str]: _mapping(_text),
    Mapping[str, float]: _mapping(_number),
}

_CHECKS = {kind: _checks(kind) for kind in _KINDS.values()}
