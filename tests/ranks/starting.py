"""Starts trainings of several ranks with the real torchrun, under the real agent."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed.run

WARM = Path(__file__).parent.parent / "fakes" / "warm.py"
TRAINING = Path(__file__).with_name("training.py")
WAIT_SECONDS = 120.0
MARK = "OUTLIVE_TEST_JOURNAL"
FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else ranks that torchrun starts again may read in its store where the former ones were (torch 2.13)."""


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
        return ends_in(self.text)

    def ranks(self) -> list[int]:
        """The processes of the ranks, in their order."""
        found = {int(words["RANK"]): pid for pid, words in self._processes().items() if "RANK" in words}
        return [found[rank] for rank in sorted(found)]

    def signal_all(self, number: int) -> None:
        """To agent, torchrun and ranks at once, as when the machine goes: none can answer another's."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> dict[int, dict[str, str]]:
        """All that belong to it, with their environment as it was when they began."""
        found = {}
        for folder in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                raw = (folder / "environ").read_bytes().decode(errors="replace")
                words = dict(word.split("=", 1) for word in raw.split("\0") if "=" in word)
                if words.get(MARK) == str(self.journal):
                    found[int(folder.name)] = words
        return found


def ends_in(text: str) -> dict[int, dict[str, Any]]:
    """What each rank said at its end. Two may have said it in one line."""
    found = [json.loads(line) for line in re.findall(r"END (\{[^}]*\})", text)]
    return {each.pop("rank"): each for each in found}


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
    warm: Path | None = None
    """Where a Python with torch loaded listens (fakes/warm.py): it starts sooner, and hears no SIGTERM."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self, name: str, *script: str, ranks: int = 2, torchrun: tuple[str, ...] = ()) -> Started:
        """``outlive exec -- torchrun --nproc-per-node N training.py``."""
        python = [sys.executable] if self.warm is None else [sys.executable, str(WARM), "run", str(self.warm)]
        torch_run = [*python, torch.distributed.run.__file__, "--nproc-per-node", str(ranks), *torchrun]
        torch_run += ["--no-python", *python, str(TRAINING)]
        agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", str(self.store)]
        command = [*agent, "--run", self.run, "--every", self.every, "--", *torch_run, *script]
        journal = self.folder / f"{name}.journal"
        with journal.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **FRESH_STORE, "OMP_NUM_THREADS": "1", MARK: str(journal)},
                start_new_session=True,
            )
        return Started(process=process, journal=journal)

    def finish(self, name: str, *script: str, ranks: int = 2) -> dict[int, dict[str, Any]]:
        """Run to the end; what each rank said there."""
        started = self.start(name, *script, ranks=ranks)
        code = started.end()
        assert code == 0 or "--look" in script, started.text[-3000:]
        return started.ends()
