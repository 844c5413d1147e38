"""What a rehearsal tells a training to do, and the diary that the training keeps for it, step by step.

``outlive rehearse`` puts its orders into the environment of the command; a training that is not rehearsed
never looks further than that one variable. The diary is a file of JSON lines.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from outlive.errors import ConfigError

VARIABLE: Final = "OUTLIVE_REHEARSAL"

STATE_BYTES: Final = 256 * 1024 * 1024
"""Up to here the diary has every tensor at every step; a larger state is compared where it is saved."""
_DEPTH: Final = 5
_SHOWN_CHARS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What one leg is to do. 0 means never; of steps and seconds the first that comes counts."""

    diary: str
    save_at: int = 0
    """Save after this step, and go on."""
    save_after_seconds: float = 0.0
    stop_at: int = 0
    """Save after this step, and stop."""
    stop_after_seconds: float = 0.0
    hold_from: int = 0
    """From this boundary on, go on only once somebody asks for something: here the reclaim comes."""

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> "Orders":
        """The reverse. ``ConfigError`` for what is no such text."""
        try:
            given = json.loads(text)
            return cls(**{each.name: given[each.name] for each in fields(cls)})
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"${VARIABLE} is not what outlive rehearse writes", hint=f"unset {VARIABLE}"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line: how everything stood at a boundary, each thing as a number's text or as a digest of its bits.

    ``step`` is -1 where the loop (re)starts, of which only ``around`` is known; the last such line counts.
    """

    step: int
    epoch: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Numbers as ``float.hex`` writes them."""
    batches: tuple[str, ...] = ()
    """Every batch that the loops were given since the boundary before."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Whatever is saved beside tensors, by path."""
    names: tuple[str, ...] | None = None
    """The tensors' paths; None if they are those of the line before."""
    tensors: tuple[str, ...] = ()
    norms: tuple[str, ...] = ()
    """Their sizes, as ``float.hex`` writes them; empty for tensors that have none."""
    around: Mapping[str, str] = field(default_factory=dict)
    """What the script holds beside that, by name: nothing of it is saved."""

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def read_diary(path: Path) -> list[Entry]:
    """Every whole line of it, oldest first; none if there is no file (yet)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    entries: list[Entry] = []
    names: tuple[str, ...] | None = None
    for line in lines:
        if not line.endswith("\n"):  # its writer was killed
            break
        given = json.loads(line)
        names = tuple(given["names"]) if given["names"] is not None else names
        given |= {name: tuple(given[name]) for name in ("batches", "tensors", "norms")} | {"names": names}
        entries.append(Entry(**given))
    return entries


def leaves(document: Any) -> dict[str, str]:
    """The leaves of a checkpoint's values by path: short ones as they are, the rest as digests."""
    found: dict[str, str] = {}
    _collect(document, "", 0, found)
    return found


def shown(text: str) -> str:
    """A text itself if it is short, else a digest of it."""
    return text if len(text) <= _SHOWN_CHARS else digest(text.encode())


def digest(content: "bytes | memoryview") -> str:
    """Short, for comparing and not for trusting."""
    return "#" + hashlib.blake2b(content, digest_size=8).hexdigest()


def _collect(node: Any, path: str, depth: int, found: dict[str, str]) -> None:
    if isinstance(node, dict) and "$tensor" not in node and depth < _DEPTH and not _tagged(node):
        for key, value in node.items():
            _collect(value, f"{path}/{key}" if path else key, depth + 1, found)
    elif isinstance(node, list) and depth < _DEPTH and any(isinstance(item, dict | list) for item in node):
        for i, value in enumerate(node):
            _collect(value, f"{path}/{i}", depth + 1, found)
    elif not (isinstance(node, dict) and "$tensor" in node):
        found[path] = shown(json.dumps(node, separators=(",", ":")))


def _tagged(node: Mapping[str, Any]) -> bool:
    return next(iter(node), "").startswith("$")
