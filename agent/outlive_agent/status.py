"""What an agent is doing right now, in a small file that ``outlive status`` reads.

The agent replaces ``status.json`` in its own runtime directory at every change of phase and about once a
second while bytes move. Nobody needs the agent to answer: one that hangs or was killed still leaves its last
words, and ``outlive status`` says how old they are.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT, VERSION = "outlive/status", 1
FILE_NAME = "status.json"
DAEMON_DIRECTORY = Path("/run/outlive")
AT_MOST = 1 << 16
PHASES = ("starting", "restoring", "training", "saving", "draining", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One agent, at ``written_at``. All times are ISO 8601 in UTC with a ``Z``; what isn't known is None."""

    pid: int
    mode: str
    """``exec``, ``daemon`` or ``sidecar``."""
    run: str
    store: str
    phase: str
    """One of :data:`PHASES`."""
    started_at: str
    written_at: str
    life: int | None = None
    trainer_pid: int | None = None
    step: int | None = None
    epoch: int | None = None
    step_seconds: float | None = None
    resumed_from: tuple[int, int] | None = None
    """Life and step."""
    saved_step: int | None = None
    """The step of this life's newest checkpoint."""
    saved_at: str | None = None
    saved_bytes: int | None = None
    saved_seconds: float | None = None
    sending_step: int | None = None
    sent_bytes: int | None = None
    sending_bytes: int | None = None
    notice: str | None = None
    """Who announced a reclaim: ``inbox``, ``flag_file``, ``signal`` or a provider."""
    deadline: str | None = None
    interval: str | None = None
    """How often it saves, in words: ``every 200 steps``."""
    problem: str | None = None
    """What is wrong at the moment, such as the last failed save; None when all is well."""


def runtime_root(environ: Mapping[str, str]) -> Path:
    """Where agents that this user starts by hand keep socket and status: a directory each, below this one."""
    if base := environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "outlive"
    return Path(f"/tmp/outlive-{os.getuid()}")  # noqa: S108 - the agent creates it 0700 and checks the owner


def write(directory: Path, status: Status) -> None:
    """Replace the status file in one go, so that a reader never sees half of it."""
    document = {"format": FORMAT, "version": VERSION, **asdict(status)}
    draft = directory / f".{FILE_NAME}.new"
    draft.write_text(json.dumps(document) + "\n", encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(directory / FILE_NAME)


def find(environ: Mapping[str, str]) -> list[Status]:
    """Every agent that this user can see, the daemon first. What can't be understood is passed over."""
    found = (read(path) for root in (DAEMON_DIRECTORY, runtime_root(environ)) for path in _files(root))
    return [status for status in found if status is not None]


def read(path: Path) -> Status | None:
    """The status in this file, or None where there is none that can be trusted."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(AT_MOST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (
        FORMAT,
        VERSION,
    ):
        return None
    if isinstance(document.get("resumed_from"), list):
        document["resumed_from"] = tuple(document["resumed_from"])
    known: dict[str, Any] = {field.name: document.get(field.name) for field in fields(Status)}
    sound = all(_sound(field.name, field.type, known[field.name]) for field in fields(Status))
    return Status(**known) if sound and 0 < known["pid"] < 1 << 31 else None


def alive(status: Status) -> bool:
    """Whether the process that wrote it still exists."""
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _files(root: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted([*root.glob(FILE_NAME), *root.glob(f"*/{FILE_NAME}")])


def _sound(name: str, kind: Any, value: object) -> bool:
    """Whether a member has its type: the file may be anyone's, where the directory is shared."""
    if name == "resumed_from":
        return value is None or (isinstance(value, tuple) and [type(part) for part in value] == [int, int])
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value >= 0 and (isinstance(value, kind) or isinstance(0.0, kind))
    return isinstance(value, kind)
