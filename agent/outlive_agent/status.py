"""What an agent is doing right now, in a small file that ``outlive status`` reads.

The agent replaces ``status.json`` in its own runtime directory at every change of phase and about once a
second while bytes move. Nobody needs the agent to answer: one that hangs or was killed still leaves its last
words, and ``outlive status`` says how old they are.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT, VERSION = "outlive/status", 1
FILE_NAME = "status.json"
DAEMON_DIRECTORY = Path("/run/outlive")
AT_MOST = 1 << 16
STALE_SECONDS = 24 * 3600.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A status file that was found, and whether its agent and its training still live."""

    status: Status
    path: Path
    alive: bool
    trains: bool


def find(environ: Mapping[str, str]) -> list[Seen]:
    """Every agent that this user can see, the daemon first. What can't be understood is passed over."""
    found = (_seen(path) for root in (DAEMON_DIRECTORY, runtime_root(environ)) for path in _files(root))
    return [seen for seen in found if seen is not None]


def sweep(found: Sequence[Seen], environ: Mapping[str, str]) -> list[Seen]:
    """Remove what agents have left that nobody needs to hear of any more; the others.

    Told for a day is one that went without a word, unless another agent has followed it since.
    """
    left = []
    newest: dict[tuple[str, str], Seen] = {}
    for seen in sorted(found, key=lambda seen: (seen.alive, seen.status.written_at)):
        newest[seen.status.run, seen.status.store] = seen
    for seen in found:
        last = newest[seen.status.run, seen.status.store] is seen and seen.status.phase != "ended"
        if seen.alive or seen.trains or (last and not _older(seen.path, STALE_SECONDS)):
            left.append(seen)
        elif seen.path.parent.parent == runtime_root(environ):
            shutil.rmtree(seen.path.parent, ignore_errors=True)
    return left


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


def lived_at(pid: int, moment: float) -> bool:
    """Whether this process lives and did so at that time: a number may have passed on to a stranger since."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _hidden(pid)
    state, ticks = fields[0], int(fields[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return state not in "ZX" and time.time() - age <= moment + 1.0


def _hidden(pid: int) -> bool:
    """Whether it lives, but as another user's whose processes are not shown to us."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _seen(path: Path) -> Seen | None:
    status = read(path)
    if status is None:
        return None
    try:
        told_at = path.stat().st_mtime
    except OSError:  # its agent has ended meanwhile, and removed it
        return None
    trainer = status.trainer_pid
    return Seen(
        status=status,
        path=path,
        alive=lived_at(status.pid, told_at),
        trains=trainer is not None and lived_at(trainer, told_at),
    )


def _older(path: Path, seconds: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
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
