"""Real ``outlive exec`` processes around the fake training, watched line by line with deadlines."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAINER = [sys.executable, str(Path(__file__).with_name("trainer.py"))]
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Exec:
    """One running ``outlive exec``; stdout and stderr of agent and training are read into ``lines``."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _reader: "threading.Thread | None" = None

    def wait_line(self, pattern: str, *, count: int = 1) -> str:
        """The ``count``-th line that matches; fails the test if it does not come."""

        def found() -> "list[str]":
            return [line for line in self.lines if re.search(pattern, line)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= count or self._ended(), PATIENCE_SECONDS):
                raise AssertionError(f"no line {pattern!r} within {PATIENCE_SECONDS} s:\n{self.text}")
            if len(found()) < count:
                raise AssertionError(f"it ended without a line {pattern!r}:\n{self.text}")
            return found()[count - 1]

    def insist(self, number: signal.Signals, line: str) -> None:
        """Send it until that line comes: what follows at once is the same signal, heard twice."""

        def sent() -> bool:
            self.signal(number)
            return self.process.poll() is not None or re.search(line, self.text) is not None

        wait_until(sent, what=f"the line {line!r}")
        self.wait_line(line)

    def signal(self, number: signal.Signals) -> None:
        """To the agent alone."""
        self.process.send_signal(number)

    def kill_trainer(self) -> int:
        """SIGKILL to the training command."""
        (child,) = children(self.process.pid)
        os.kill(child, signal.SIGKILL)
        return child

    def exit_code(self) -> int:
        """How it ended; all output is read then."""
        code = self.process.wait(PATIENCE_SECONDS)
        if self._reader is not None:
            self._reader.join(PATIENCE_SECONDS)
        return code

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def start_reading(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _ended(self) -> bool:
        return self.process.poll() is not None and self._reader is not None and not self._reader.is_alive()


@dataclass(slots=True)
class Machine:
    """A store, a runtime directory, and the agents that a test has started there."""

    directory: Path
    started: list[Exec] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def exec(
        self,
        *trainer: str,
        options: "tuple[str, ...]" = ("--every", "10 steps"),
        command: "list[str] | None" = None,
        environ: "dict[str, str] | None" = None,
        before: "Callable[[], object] | None" = None,
    ) -> Exec:
        """Start ``outlive exec`` around the fake training, or around ``command``."""
        agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", str(self.store), "--run", "t"]
        return self.start(
            [*agent, *options, "--", *(command or [*TRAINER, *trainer])], environ=environ, before=before
        )

    def start(
        self,
        command: "list[str]",
        *,
        environ: "dict[str, str] | None" = None,
        before: "Callable[[], object] | None" = None,
        fds: "tuple[int, ...]" = (),
    ) -> Exec:
        """Start any program with this machine's environment."""
        process = subprocess.Popen(
            command,
            env=self.environ(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=before,
            pass_fds=fds,
        )
        running = Exec(process)
        running.start_reading()
        self.started.append(running)
        return running

    def environ(self, more: "dict[str, str] | None" = None) -> "dict[str, str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        return {
            **clean,
            "XDG_RUNTIME_DIR": str(self.directory),
            "HOME": str(self.directory),
            "PYTHONUNBUFFERED": "1",
            "OUTLIVE_PROVIDER": "none",
            **(more or {}),
        }

    def events(self, life: int) -> "list[dict[str, Any]]":
        """The history of one life, in order."""
        paths = sorted((self.store / "t" / "history").glob(f"{life:06d}-*.json"))
        return [json.loads(path.read_bytes()) for path in paths]

    def checkpoints(self) -> "list[tuple[int, int]]":
        """Life and step of each manifest."""
        names = [path.stem for path in (self.store / "t" / "checkpoints").glob("*.json")]
        return sorted((int(name[:6]), int(name[7:])) for name in names)

    def clean_up(self) -> None:
        """Nothing that a test started survives it."""
        for running in self.started:
            if running.process.poll() is None:
                for pid in [*descendants(running.process.pid), running.process.pid]:
                    kill(pid)
            running.exit_code()


def children(pid: int) -> "list[int]":
    """Direct children of a process; none if it is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> "Iterator[int]":
    for child in children(pid):
        yield from descendants(child)
        yield child


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_until(true: Callable[[], bool], *, what: str) -> None:
    """Wait for a condition in another process, with a deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    never = threading.Event()
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        never.wait(0.01)
