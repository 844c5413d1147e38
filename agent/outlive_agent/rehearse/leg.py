"""One leg: the user's command under ``outlive exec``, watched through its diary."""

import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import OutliveError
from outlive.programs import program
from outlive.staging.rehearsal import VARIABLE, Entry, Orders, read_diary
from outlive.store.layout import CheckpointId
from outlive.store.lives import read_adoption
from outlive_agent.exits import Exit
from outlive_agent.rehearse.site import Site

LOOK_SECONDS = 0.05
KILL_SECONDS = 10.0
_NEVER = "30000 d"
_ALL = "100000"
_TAIL_LINES = 12
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What became of one start of the command."""

    name: str
    life: int
    resumed: CheckpointId | None
    saved: tuple[CheckpointId, ...]
    code: int
    seconds: float
    struck_seconds: float | None
    """From the reclaim to its end, if it was reclaimed."""
    entries: Mapping[int, Entry]
    """By step; -1 is where the loop (re)started."""
    log: Path

    @property
    def first(self) -> int:
        """The step it began from."""
        return self.resumed.step if self.resumed is not None else 0

    @property
    def last(self) -> int:
        """The last step it finished."""
        return max(self.entries, default=self.first)

    @property
    def well(self) -> bool:
        """Whether it finished, or was stopped and saved."""
        return self.code in {Exit.FINISHED, Exit.RESUME}


class Running:
    """A leg under way. ``pid`` is that of its agent."""

    def __init__(self, site: Site, orders: Orders, *, rewind: int | None, environ: Mapping[str, str]) -> None:
        self.site = site
        self._diary = Path(orders.diary)
        self._read = self._step = 0
        self.log = self._diary.with_suffix(".log")
        command = [*program("outlive_agent.__main__"), "exec", "--store", str(site.location)]
        command += ["--run", site.run, "--every", _NEVER, "--keep", _ALL, "--stop-grace", "5 min"]
        command += ["--rewind", str(rewind)] if rewind is not None else []
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - to run the user's command is what we are for
                [*command, "--", *site.command],
                env=site.environ({**environ, VARIABLE: orders.encode()}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to pass on
                preexec_fn=_die_with_us(os.getpid()),
            )
        self.pid = self._process.pid
        self._began_at = time.monotonic()
        self.struck_at: float | None = None

    @property
    def step(self) -> int:
        """The last step in the diary; 0 before the first. Cheap: reads what was added since."""
        with suppress(FileNotFoundError), self._diary.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0]
            if lines:
                self._read += len(lines) + 1
                self._step = max(self._step, json.loads(lines.rpartition(b"\n")[2])["step"])
        return self._step

    @property
    def entries(self) -> dict[int, Entry]:
        return {entry.step: entry for entry in read_diary(self._diary)}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_at

    def poll(self) -> int | None:
        """Its exit code, once it has one."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """The machine is gone: agent and training at the same moment."""
        for pid in [self.pid, *_descendants(self.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Nothing of it stays, however the rehearsal is left."""
        if self.poll() is None:
            self.kill()


def run_leg(
    running: Running, *, name: str, limit_seconds: float, watch: Callable[[Running], None] = lambda _: None
) -> Leg:
    """See a leg to its end. ``watch`` is called again and again while it runs."""
    try:
        while running.poll() is None:
            watch(running)
            if running.seconds > limit_seconds:
                raise OutliveError(
                    f"the {name} leg is at step {running.step} after {limit_seconds:.0f} s, and was ended",
                    hint=f"what it said last:\n{tail(running.log)}",
                )
            running.wait(LOOK_SECONDS)
        seconds = running.seconds
    finally:
        running.end()
    return _ended(running, name=name, seconds=seconds)


def _ended(running: Running, *, name: str, seconds: float) -> Leg:
    site = running.site
    life = site.life()
    adoption = read_adoption(site.store(), site.run, life) if life else None
    return Leg(
        name=name,
        life=life,
        resumed=adoption.checkpoint if adoption is not None else None,
        saved=tuple(site.saved(life)),
        code=running.poll() or 0,
        seconds=seconds,
        struck_seconds=None if running.struck_at is None else seconds - running.struck_at,
        entries=running.entries,
        log=running.log,
    )


def tail(log: Path) -> str:
    """The last lines of a leg's output, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"  | {line}" for line in lines)


def _descendants(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []
    return [each for child in children for each in (child, *_descendants(child))]


def _die_with_us(parent: int) -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare
