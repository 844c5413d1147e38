"""Dies at every single effect of the agent, of the training, and of both at once, with the real ones.

    python tests/fault/effects.py [--every 1] [agent training both]

Each time a run begins anew, is killed right before its n-th effect, and is left to finish: what was
acknowledged is there and verifies, and the end equals that of a run nobody touched, bit for bit.
``--every K`` takes every K-th effect, from a random one on. Exit status 1 if anything was lost or differs.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from fakes.programs import Program
from fault.kills import Tally, check, end_state

Victim = Literal["agent", "training", "both"]
HERE = Path(__file__).parent
EPOCHS, EVERY = 2, 5
PATIENCE_SECONDS = 300.0


@dataclass(slots=True)
class Field:
    """A folder with the run that nobody touched, and Python with torch loaded."""

    folder: Path
    warm: Path
    tally: Tally = field(default_factory=Tally)
    deaths: dict[str, int] = field(default_factory=dict)

    def run(self, name: str, *, victim: Victim | None = None, at: int = 0) -> int:
        """One life; returns the effects of the victim if it lived to its end, 0 if it died."""
        count = self.folder / "count"
        count.unlink(missing_ok=True)
        dying = [str(HERE / "dying.py"), str(at), str(count)]
        script = [str(HERE / "training.py"), "--epochs", str(EPOCHS)]
        training = [sys.executable, str(HERE.parent / "fakes" / "warm.py"), "run", str(self.warm)]
        training += [*dying, *script] if victim == "training" else script
        agent = ["-m", "outlive_agent", "exec", "--store", str(self.folder / "store"), "--run", name]
        agent += ["--every", f"{EVERY} steps", "--", *training]
        command = [sys.executable, *(dying if victim in {"agent", "both"} else []), *agent]
        with (self.folder / f"{name}.journal").open("ab") as journal:
            process = subprocess.Popen(
                command,
                stdout=journal,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            process.wait(PATIENCE_SECONDS)
        if victim == "both" and process.returncode == -signal.SIGKILL:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return int(count.read_text()) if count.exists() else 0

    def strike(self, victim: Victim, at: int, expected: object) -> None:
        """A life that dies there, and another one that finishes."""
        name = f"{victim}-{at}"
        if self.run(name, victim=victim, at=at) == 0:
            self.deaths[victim] = self.deaths.get(victim, 0) + 1
        journal = self.folder / f"{name}.journal"
        check(self.folder / "store", name, journal, self.tally)
        self.run(name)
        check(self.folder / "store", name, journal, self.tally)
        if _end(self.folder / "store", name) != expected:
            self.tally.problems.append(f"{name}: the end differs from that of the untouched run")


def _end(store: Path, run: str) -> object:
    newest, image, values = end_state(store, run)
    return newest.step, image, values


def campaign(folder: Path, victims: list[Victim], *, every: int, draw: random.Random) -> Field:
    """Every K-th effect of each victim."""
    folder.mkdir(exist_ok=True)
    warm = folder / "warm"
    server = Program(
        [sys.executable, str(HERE.parent / "fakes" / "warm.py"), "serve", str(warm)], log=folder / "warm.log"
    )
    try:
        server.wait_until(warm.exists, seconds=120)
        scene = Field(folder=folder, warm=warm)
        scene.run("untouched")
        expected = _end(folder / "store", "untouched")
        for victim in victims:
            effects = scene.run(f"{victim}-counted", victim=victim)
            assert effects > 0
            for at in range(1 + draw.randrange(every), effects + 1, every):
                scene.strike(victim, at, expected)
            print(
                f"{victim}: {scene.deaths} of {effects} effects, problems {len(scene.tally.problems)}",
                flush=True,
            )
        return scene
    finally:
        server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("victims", nargs="*", default=list(get_args(Victim)))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="outlive-effects-"))
    draw = random.Random(options.seed)  # noqa: S311 - where to begin, not a secret
    scene = campaign(folder, options.victims, every=options.every, draw=draw)
    for problem in scene.tally.problems:
        print(f"problem: {problem}")
    print(
        f"deaths survived: {scene.deaths}; acknowledgements checked: {scene.tally.acknowledged}; "
        f"bytes checked: {scene.tally.bytes_checked:,}; problems: {len(scene.tally.problems)}; "
        f"{time.monotonic() - began:.0f} s; journals in {folder}"
    )
    return 1 if scene.tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
