"""Starts trainings of several ranks with the real torchrun, under the real agent."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).with_name("training.py")
WAIT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Started:
    """A command under way, and its journal."""

    process: "subprocess.Popen[bytes]"
    journal: Path

    @property
    def text(self) -> str:
        return self.journal.read_text(errors="replace")

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Until the journal says this."""
        found: re.Match[str] = until(lambda: re.search(pattern, self.text), f"{pattern!r} in {self.journal}")
        return found

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(WAIT_SECONDS)

    def ends(self) -> dict[int, dict[str, Any]]:
        """What each rank said at its end."""
        found = [json.loads(line) for line in re.findall(r"END (\{.*\})", self.text)]
        return {each.pop("rank"): each for each in found}

    def ranks(self) -> list[int]:
        """The processes of the ranks, in their order."""
        found = {rank: pid for pid in _below(self.process.pid) if (rank := _rank_of(pid)) is not None}
        return [found[rank] for rank in sorted(found)]


def until(look: Callable[[], Any], what: str) -> Any:
    """Wait until `look` gives something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.02)
    return found


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store, and a folder for journals."""

    folder: Path
    run: str = "many"
    every: str = "5 steps"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self, name: str, *script: str, ranks: int = 2, torchrun: tuple[str, ...] = ()) -> Started:
        """``outlive exec -- torchrun --nproc-per-node N training.py``."""
        torch_run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *torchrun]
        agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", str(self.store)]
        command = [*agent, "--run", self.run, "--every", self.every, "--", *torch_run, str(TRAINING), *script]
        journal = self.folder / f"{name}.journal"
        with journal.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        return Started(process=process, journal=journal)

    def finish(self, name: str, *script: str, ranks: int = 2) -> dict[int, dict[str, Any]]:
        """Run to the end; what each rank said there."""
        started = self.start(name, *script, ranks=ranks)
        assert started.end() == 0, started.text[-3000:]
        return started.ends()


def _below(pid: int) -> list[int]:
    """Every descendant of a process."""
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_below(child)]
    except OSError:
        return found
    return found


def _rank_of(pid: int) -> int | None:
    """Which rank this process is."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
    return found[0] if found else None


def kill_all(started: Started, number: int = signal.SIGKILL) -> None:
    """The whole group at once, as when the machine goes."""
    os.killpg(started.process.pid, number)
