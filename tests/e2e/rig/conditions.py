"""What a test can wait for in a guest. Each is asked again and again until it gives something."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from e2e.rig.journal import Entry, Journal

T_co = TypeVar("T_co", covariant=True)


class Guest(Protocol):
    """What conditions look at."""

    @property
    def journal(self) -> Journal: ...
    @property
    def boot_id(self) -> str: ...
    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> str: ...
    def unit(self, name: str) -> Mapping[str, str]: ...


class Condition(Protocol[T_co]):
    """Gives None while it isn't true yet. Its text says what is waited for."""

    def __call__(self, guest: Guest) -> T_co | None: ...


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of this boot that contains `text`; the `count`th of them."""

    text: str
    unit: str = ""
    count: int = 1

    def __call__(self, guest: Guest) -> Entry | None:
        lines = guest.journal.entries(unit=self.unit, boot=guest.boot_id)
        found = [entry for entry in lines if self.text in entry.message]
        return found[self.count - 1] if len(found) >= self.count else None


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit whose ActiveState is `state`."""

    unit: str
    state: str = "active"

    def __call__(self, guest: Guest) -> Mapping[str, str] | None:
        properties = guest.unit(self.unit)
        return properties if properties.get("ActiveState") == self.state else None


@dataclass(frozen=True, slots=True)
class FileThere:
    """A file that is there."""

    path: str

    def __call__(self, guest: Guest) -> bool | None:
        return guest.exists(self.path) or None


@dataclass(frozen=True, slots=True)
class CloudInitDone:
    """cloud-init has finished in this boot; gives its own verdict: `datasource` and `errors`."""

    def __call__(self, guest: Guest) -> Mapping[str, object] | None:
        result = "/run/cloud-init/result.json"
        if not guest.exists(result):
            return None
        verdict = json.loads(guest.read(result))["v1"]
        assert isinstance(verdict, dict)
        return verdict
