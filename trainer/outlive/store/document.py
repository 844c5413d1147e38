"""Every small JSON document of the store: written in one way, read without trusting a byte of it."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from math import isfinite
from typing import Final, TypeAlias, TypeGuard

from outlive.errors import Damaged
from outlive.objects.sealed import SEALS

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""No document is longer, so nobody reads more."""
TEXT_CHARS: Final = 4096
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NONCE: Final = re.compile(r"[0-9a-f]{32}")

_VERSION: Final = 1
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NOT_FINITE: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def encode(kind: str, members: Mapping[str, Json]) -> bytes:
    """A document of format ``outlive/<kind>``, its members in the order given."""
    document = {"format": f"outlive/{kind}", "version": _VERSION, **members}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def decode(raw: bytes, kind: str, *, where: str) -> "Fields":
    """The members of a document of format ``outlive/<kind>``. ``Damaged`` if it is anything else."""
    # A list is 3 bytes of JSON and 60 of memory: without a bound a small document could fill a large memory.
    if len(raw) > DOCUMENT_BYTES or raw.count(b"[") + raw.count(b"{") > len(raw) // 12 + 64:
        raise Damaged(f"{where} is not a document of outlive: too large, or too many members")
    refuse_sealed(raw, where=where)
    try:
        document = json.loads(raw.decode(), parse_int=_parse_int, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is not readable JSON: {error}") from error
    fields = Fields(document, where=where)
    if fields.text("format") != f"outlive/{kind}":
        raise Damaged(f"{where} is not of format outlive/{kind}")
    version = fields.integer("version", low=1)
    if version != _VERSION:
        raise Damaged(
            f"{where} is of version {version}, this program reads version {_VERSION}",
            hint="install the version of outlive that wrote it, or a newer one",
        )
    return fields


def refuse_sealed(raw: bytes, *, where: str) -> None:
    """``Damaged`` if it was sealed with a key that this reader was not given."""
    if raw.startswith(SEALS):
        raise Damaged(
            f"{where} is encrypted or signed",
            hint="give the key: OUTLIVE_ENCRYPTION_KEY or OUTLIVE_SIGNING_KEY",
        )


class Fields:
    """The members of one JSON object. What is asked for has its type and bounds, or ``Damaged`` names it."""

    __slots__ = ("_members", "_where")

    def __init__(self, value: object, *, where: str) -> None:
        if not isinstance(value, dict):
            raise Damaged(f"{where} is not an object")
        self._members: dict[str, object] = value
        self._where = where

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

    def names(self) -> list[str]:
        return list(self._members)

    def members(self) -> dict[str, object]:
        """Everything, unchecked."""
        return dict(self._members)

    def integer(self, name: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
        value = self._members.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(name)
        return value

    def flag(self, name: str) -> bool:
        value = self._members.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value

    def number(self, name: str) -> float:
        """A float; also one that is not finite, which JSON can't hold and which is a string here."""
        value = self._members.get(name)
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise self.wrong(name)
        return float(value)

    def text(self, name: str, *, pattern: "re.Pattern[str] | None" = None, most: int = TEXT_CHARS) -> str:
        value = self._members.get(name)
        if not is_text(value, most=most) or (pattern is not None and not pattern.fullmatch(value)):
            raise self.wrong(name)
        return value

    def time(self, name: str) -> datetime:
        value = self.text(name, pattern=_TIME)
        try:
            return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
        except ValueError as error:
            raise self.wrong(name) from error

    def member(self, name: str) -> "Fields":
        return Fields(self._members.get(name), where=f"{self._where}: {name}")

    def sequence(self, name: str, *, most: int) -> list[object]:
        value = self._members.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name)
        return value

    def objects(self, name: str, *, most: int) -> "list[Fields]":
        return [
            Fields(item, where=f"{self._where}: {name}[{index}]")
            for index, item in enumerate(self.sequence(name, most=most))
        ]

    def wrong(self, name: str) -> Damaged:
        return Damaged(f"{self._where}: {name} is missing or not what it must be")


def is_text(value: object, *, most: int = TEXT_CHARS) -> TypeGuard[str]:
    """A string that is short enough and can be printed: half a surrogate pair would break every terminal."""
    return isinstance(value, str) and len(value) <= most and not _SURROGATE.search(value)


def printable(text: str, *, most: int = TEXT_CHARS) -> str:
    """The same text with what isn't Unicode (a file name, say) spelled out, and cut to ``most``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:most]


def stamp(moment: datetime) -> str:
    """A time as documents hold it: UTC, milliseconds."""
    return moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def float_json(value: float) -> Json:
    """A float as documents hold it: a string where JSON has no number for it."""
    if isfinite(value):
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def _parse_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number of more than 20 digits")  # converting a million digits takes minutes
    return int(digits)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")
