"""One life of the demo's run: ``outlive exec`` started, watched step by step, and taken away."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Ending = Literal["notice", "sigterm", "sigkill", "finished"]
Losses = list[tuple[int, str]]

NOTICE_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one life did. Steps count from 0 before the first; ``losses`` are hexadecimal."""

    ended: Ending
    exit_code: int
    from_step: int
    to_step: int
    steps_lost: int
    recovery_seconds: float
    """From the start of the process to its first finished step."""
    save_seconds: float | None
    """From taking the life away to its end, the last save included; None where there was no last save."""
    losses: Losses = field(repr=False)
    stalls: tuple[float, ...] = field(repr=False)
    """What its saves cost the training, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run of the demo lives: its store, its text, its output."""

    build: Path
    run: str
    text: Path
    every: int
    epochs: int

    @property
    def store(self) -> Path:
        return self.build / "store"

    def start(self, log: Path) -> "subprocess.Popen[bytes]":
        """Start ``outlive exec`` on the training; the journal goes to a file beside the log."""
        train = Path(__file__).with_name("transformer.py")
        outlive = [
            sys.executable,
            "-m",
            "outlive_agent",
            "exec",
            "--store",
            str(self.store),
            "--run",
            self.run,
        ]
        command = [sys.executable, str(train), "--text", str(self.text), "--log", str(log)]
        with log.with_suffix(".journal").open("wb") as journal:
            return subprocess.Popen(
                [*outlive, "--every", f"{self.every} steps", "--", *command, "--epochs", str(self.epochs)],
                stdout=journal,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )


def read_losses(log: Path) -> Losses:
    """The whole lines of a life's log."""
    if not log.exists():
        return []
    lines = log.read_text().split("\n")[:-1]
    return [(int(step), loss) for step, loss in (line.split() for line in lines)]


def live(place: Place, number: int, ending: Ending, at_step: int, previous_step: int) -> Life:
    """Run one life. Unless ``ending`` is ``finished``, take it away at the first step from ``at_step`` on."""
    log = place.build / f"life-{number}.log"
    started = time.monotonic()
    process = place.start(log)
    first_step_after = _wait_for_step(process, log, 1, started)
    if ending != "finished":
        reach = max(1, at_step - previous_step)
        _wait_for_step(process, log, reach, started)
    taken_at = time.monotonic()
    _take_away(place, process, ending)
    code = process.wait(timeout=170)
    losses = read_losses(log)
    if not losses:
        raise SystemExit(f"life {number} made no step; see {log.with_suffix('.journal')}")
    return Life(
        ended=ending,
        exit_code=code,
        from_step=losses[0][0] - 1,
        to_step=losses[-1][0],
        steps_lost=previous_step - (losses[0][0] - 1),
        recovery_seconds=round(first_step_after, 2),
        save_seconds=round(time.monotonic() - taken_at, 2) if ending in {"notice", "sigterm"} else None,
        losses=losses,
        stalls=tuple(float(line) for line in log.with_suffix(".stalls").read_text().split("\n")[:-1]),
    )


def _wait_for_step(process: "subprocess.Popen[bytes]", log: Path, count: int, started: float) -> float:
    """Wait until the log holds ``count`` steps; return the seconds since ``started``."""
    while len(read_losses(log)) < count:
        if process.poll() is not None or time.monotonic() - started > 170:
            process.kill()
            raise SystemExit(f"the training stopped before its step; see {log.with_suffix('.journal')}")
        time.sleep(0.01)
    return time.monotonic() - started


def _take_away(place: Place, process: "subprocess.Popen[bytes]", ending: Ending) -> None:
    if ending == "notice":
        reclaim = [sys.executable, "-m", "outlive_agent", "reclaim", place.run, "--store", str(place.store)]
        subprocess.run([*reclaim, "--in", f"{NOTICE_SECONDS}s"], check=True, stdout=subprocess.DEVNULL)
    elif ending == "sigterm":
        process.send_signal(signal.SIGTERM)
    elif ending == "sigkill":
        for pid in [process.pid, *_descendants(process.pid)]:
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """Children, grandchildren and so on: a machine that vanishes takes agent, trainer and workers at once."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *_descendants(child)]
    return found
