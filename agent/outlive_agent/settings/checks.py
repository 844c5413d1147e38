"""Reads mapping after mapping and collects every problem, each with its place, value and what is allowed."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from outlive.errors import ConfigError

T = TypeVar("T")
KeyPath: TypeAlias = "tuple[str | int, ...]"
"""Where a value stands in a document: ``("save", "keep", "last")``."""

SECRET_NAME = re.compile(r"secret|passw|token|(?:access|api|private)[-_]?key", re.IGNORECASE)
SECRET_VALUE = re.compile(r"(?:AKIA|ASIA|DO00|DO801)[A-Z0-9]{12,}|[A-Za-z0-9+/=_-]{40,}|//[^/\s]*:[^/\s]*@")
REFERENCE_HINT = (
    "put the keys into /etc/outlive/credentials (chmod 600), as OUTLIVE_S3_ACCESS_KEY_ID=... and "
    "OUTLIVE_S3_SECRET_ACCESS_KEY=..., and write store: {credentials: {file: /etc/outlive/credentials}}"
)


@dataclass(slots=True)
class Problems:
    """All that is wrong with one configuration. ``origins`` says where each value was given."""

    origins: Mapping[KeyPath, str]
    found: list[tuple[str, str]] = field(default_factory=list)
    secrets: bool = False

    def add(self, path: KeyPath, text: str) -> None:
        above = [path[:n] for n in range(len(path), -1, -1)]
        beside = [known for known in self.origins if path[:-1] and known[:-1] == path[:-1]]
        origin = next((self.origins[at] for at in [*above, *beside] if at in self.origins), "")
        self.found.append((origin, f"{dotted(path)}: {text}"))

    def add_secret(self, path: KeyPath) -> None:
        self.secrets = True
        self.add(path, "secrets don't belong here, only where to find them")

    def raise_any(self, subject: str) -> None:
        """Raise one ``ConfigError`` that holds them all, one a line."""
        if not self.found:
            return
        found = sorted(self.found, key=lambda problem: _line(problem[0]))
        width = max(len(origin) for origin, _ in found)
        lines = [f"  {origin:<{width}}  {text}" if width else f"  {text}" for origin, text in found]
        what = f"{len(lines)} settings are wrong" if len(lines) > 1 else "a setting is wrong"
        raise ConfigError(
            "\n".join([f"{subject}: {what}", *lines]), hint=REFERENCE_HINT if self.secrets else ""
        )


class Section:
    """One mapping of the document, read key by key; ``close`` complains of what nobody read."""

    def __init__(self, content: object, path: KeyPath, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self.content: Mapping[str, object] = content if isinstance(content, Mapping) else {}
        self.known: list[str] = []
        if content is not None and not isinstance(content, Mapping):
            expected = (
                f"expected 'key: value' lines below {dotted(path)}" if path else "expected 'key: value' lines"
            )
            problems.add(path, f"{shown(path, content)} is not allowed; {expected}")

    def section(self, key: str) -> "Section":
        """The mapping below ``key``; an empty one where there is none."""
        self.known.append(key)
        return Section(self.content.get(key), (*self.path, key), self.problems)

    def optional(self, key: str) -> "Section | None":
        """The mapping below ``key``, or None where there is none."""
        section = self.section(key)
        return None if self.content.get(key) is None else section

    def take(self, key: str, read: Callable[[object], T], default: T) -> T:
        """The value of ``key``. ``read`` raises ``ValueError`` with what is allowed."""
        self.known.append(key)
        if key not in self.content:
            return default
        try:
            return read(self.content[key])
        except ValueError as error:
            path = (*self.path, key)
            self.problems.add(path, f"{shown(path, self.content[key])} is not allowed; expected {error}")
            return default

    def require(self, key: str, read: Callable[[object], T], stand_in: T) -> T:
        """As :meth:`take`, but it is a problem if there is none; nobody ever uses ``stand_in``."""
        if key not in self.content:
            self.known.append(key)
            self.problems.add((*self.path, key), "missing")
            return stand_in
        return self.take(key, read, stand_in)

    def close(self) -> None:
        for key in self.content:
            if key in self.known:
                continue
            path = (*self.path, key)
            if SECRET_NAME.search(key):
                self.problems.add_secret(path)
                continue
            near = difflib.get_close_matches(key, self.known, n=1, cutoff=0.5)
            known = f"did you mean {near[0]}?" if near else f"known here: {', '.join(self.known)}"
            self.problems.add(path, f"unknown key; {known}")


def _line(origin: str) -> int:
    return int(origin[5:]) if origin.startswith("line ") else 0


def dotted(path: KeyPath) -> str:
    """``training.command[2]``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" if text else _printable(part)
    return text or "the document"


def shown(path: KeyPath, value: object) -> str:
    """The value as a message may show it: short, and never a secret."""
    text = _printable(repr(value))
    if "credentials" in path or SECRET_VALUE.search(text) or SECRET_NAME.search(dotted(path)):
        return "this value (not shown)"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return text.lower()
    if isinstance(value, Mapping | list):
        return "a list" if isinstance(value, list) else "a mapping"
    return text if len(text) <= 60 else text[:57] + "..."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
