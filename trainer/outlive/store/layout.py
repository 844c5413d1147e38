"""The one place that knows how a key is spelled, in both directions."""

import re
from dataclasses import dataclass
from typing import Final

from outlive.errors import ConfigError
from outlive.store.document import DIGEST, NONCE

RUN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
EVENT_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
MAX_LIFE: Final = 999_999
MAX_STEP: Final = 999_999_999_999
MAX_EVENT: Final = 999_999

_ID: Final = re.compile(r"([0-9]{6})-([0-9]{12})")
_CLAIM: Final = re.compile(r"([0-9]{6})(?:\.([0-9a-f]{32}))?\.json")
_ADOPTION: Final = re.compile(r"([0-9]{6})\.(adopted|rewound)\.json")
_TRACE: Final = re.compile(
    r"([0-9]{6})(?:(?:\.[0-9a-f]{32}|\.adopted|\.rewound|-[0-9]{12}|-[0-9]{6}-[a-z0-9-]+)?\.json|-[0-9]{12}/.+)"
)
_EVENT: Final = re.compile(r"([0-9]{6})-([0-9]{6})-([a-z][a-z0-9-]{0,31})\.json")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointId:
    """Which checkpoint of a run. Sorts by life, then by step; so do its keys."""

    life: int
    step: int

    def __post_init__(self) -> None:
        if not (1 <= self.life <= MAX_LIFE and 0 <= self.step <= MAX_STEP):
            raise ValueError(f"no checkpoint can be of life {self.life} and step {self.step}")

    def __str__(self) -> str:
        return f"{self.life:06d}-{self.step:012d}"

    @classmethod
    def parse(cls, text: str) -> "CheckpointId":
        """The reverse of ``str``. ``ValueError`` if it is anything else."""
        match = _ID.fullmatch(text)
        if match is None or not text.isascii():
            raise ValueError(f"not a checkpoint: {text!r}")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimKey:
    """A claim's key, taken apart. ``nonce`` is None where the store honours create-only."""

    life: int
    nonce: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKey:
    """An event's key, taken apart."""

    life: int
    sequence: int
    event: str


def check_run_name(name: str) -> str:
    """``name``, if a run may be called that; it becomes part of every key, so nothing else gets in."""
    if not RUN_NAME.fullmatch(name):
        raise ConfigError(
            f"a run can't be called {name!r}",
            hint="use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
        )
    return name


def run_prefix(run: str) -> str:
    return f"{run}/"


def after_run(run: str) -> str:
    """Greater than every key of ``run``, smaller than those of later runs: to jump over it in a listing."""
    return f"{run}0"  # "0" follows "/"


def run_of(key: str) -> str | None:
    """The run that a key belongs to, if it can belong to one."""
    name, slash, _ = key.partition("/")
    return name if slash and RUN_NAME.fullmatch(name) else None


def chunks(run: str) -> str:
    return f"{run}/chunks/"


def chunk(run: str, home: CheckpointId, *, blake3: str) -> str:
    if not DIGEST.fullmatch(blake3):
        raise ValueError(f"not a BLAKE3: {blake3!r}")  # or a key could leave the run's prefix
    return f"{run}/chunks/{home}/{blake3}"


def parse_chunk(run: str, key: str) -> tuple[CheckpointId, str] | None:
    home, _, blake3 = key.removeprefix(chunks(run)).partition("/")
    parsed = _id(home)
    return (parsed, blake3) if parsed and DIGEST.fullmatch(blake3) else None


def manifests(run: str) -> str:
    return f"{run}/checkpoints/"


def manifest(run: str, checkpoint: CheckpointId) -> str:
    return f"{run}/checkpoints/{checkpoint}.json"


def parse_manifest(run: str, key: str) -> CheckpointId | None:
    name = key.removeprefix(manifests(run))
    return _id(name.removesuffix(".json")) if name.endswith(".json") else None


def part(run: str, checkpoint: CheckpointId, *, rank: int, world: int) -> str:
    return f"{run}/parts/{checkpoint}/{rank}-of-{world}.json"


def lives(run: str) -> str:
    return f"{run}/lives/"


def life(run: str, number: int) -> str:
    """The claim of a life, where the store honours create-only."""
    return f"{run}/lives/{number:06d}.json"


def keyed_life(run: str, number: int, *, nonce: str) -> str:
    """The claim of a life, where it does not: a key that nobody else writes."""
    if not NONCE.fullmatch(nonce):
        raise ValueError(f"not a nonce: {nonce!r}")
    return f"{run}/lives/{number:06d}.{nonce}.json"


def of_life(run: str, number: int) -> str:
    """The prefix of everything in ``lives/`` that concerns this number."""
    return f"{run}/lives/{number:06d}."


def parse_claim(run: str, key: str) -> ClaimKey | None:
    match = _CLAIM.fullmatch(key.removeprefix(lives(run)))
    return ClaimKey(life=int(match[1]), nonce=match[2]) if match and int(match[1]) else None


def adopted(run: str, number: int, *, rewind: bool = False) -> str:
    return f"{run}/lives/{number:06d}.{'rewound' if rewind else 'adopted'}.json"


def parse_rewound(run: str, key: str) -> int | None:
    """The life that went back on purpose, if that is what the key says."""
    match = _ADOPTION.fullmatch(key.removeprefix(lives(run)))
    return int(match[1]) or None if match and match[2] == "rewound" else None


def traces(run: str) -> list[str]:
    """The prefixes below which a life leaves something; what follows begins with its number."""
    return [lives(run), manifests(run), chunks(run), f"{run}/parts/", histories(run)]


def life_in(name: str) -> int | None:
    """The life that a key is of, given what follows its prefix of the above."""
    match = _TRACE.fullmatch(name)
    return int(match[1]) or None if match else None


def histories(run: str, number: int | None = None) -> str:
    """The prefix of all events, or of one life's."""
    return f"{run}/history/" if number is None else f"{run}/history/{number:06d}-"


def history(run: str, number: int, *, sequence: int, event: str) -> str:
    if not EVENT_NAME.fullmatch(event) or not 0 <= sequence <= MAX_EVENT:
        raise ValueError(f"no event can be called {event!r} and have number {sequence}")
    return f"{run}/history/{number:06d}-{sequence:06d}-{event}.json"


def parse_history(run: str, key: str) -> EventKey | None:
    match = _EVENT.fullmatch(key.removeprefix(histories(run)))
    return EventKey(life=int(match[1]), sequence=int(match[2]), event=match[3]) if match else None


def inboxes(run: str) -> str:
    return f"{run}/inbox/"


def inbox(run: str, request: str) -> str:
    if not REQUEST_ID.fullmatch(request):
        raise ValueError(f"no request can be called {request!r}")
    return f"{run}/inbox/{request}.json"


def parse_inbox(run: str, key: str) -> str | None:
    name = key.removeprefix(inboxes(run))
    request = name.removesuffix(".json")
    return request if name.endswith(".json") and REQUEST_ID.fullmatch(request) else None


def artifact(run: str, name: str) -> str:
    """The prefix of one export."""
    return f"{run}/artifacts/{check_run_name(name)}/"


def _id(text: str) -> CheckpointId | None:
    try:
        return CheckpointId.parse(text)
    except ValueError:
        return None
