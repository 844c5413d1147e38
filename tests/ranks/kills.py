"""Kill a rank, all ranks, the agent or everything at random moments; prove that nothing acknowledged is lost.

    python tests/ranks/kills.py [--kills 60]

Every round is a run of two ranks, DDP and FSDP2 in turn: some kills, then it is left to finish, and its end
is compared bit for bit with that of a run nobody touched. Exit status 1 if anything was lost or differs.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fakes.programs import Program
from fault.kills import Tally, check
from ranks.starting import WARM, Place, Started, until

Victim = Literal["rank", "ranks", "agent", "everything"]
WAYS = ("ddp", "fsdp")
KILLS_A_ROUND = 5
LONGEST_SECONDS = 3.0
"""From the training's first step to a kill."""
EPOCHS = ("--epochs", "25")
PAUSE = ("--pause", "0.03")


@dataclass(slots=True)
class Campaign:
    """All rounds."""

    folder: Path
    warm: Path
    draw: random.Random
    tally: Tally = field(default_factory=Tally)
    struck: Counter[str] = field(default_factory=Counter)
    untouched: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    def round(self, number: int, victims: list[Victim]) -> None:
        """One run, taken away so many times."""
        way = WAYS[number % len(WAYS)]
        if way not in self.untouched:
            self.untouched[way] = self._place(f"untouched-{way}").finish("only", "--way", way, *EPOCHS)
        place = self._place(f"round-{number}")
        for turn, victim in enumerate(victims):
            started = place.start(f"{turn}", "--way", way, *EPOCHS, *PAUSE)
            self.struck[victim] += self._strike(started, victim)
            self._gone(started)
            check(place.store, place.run, started.journal, self.tally)
        ends = place.finish("last", "--way", way, *EPOCHS)
        check(place.store, place.run, place.folder / "last.journal", self.tally)
        if ends != self.untouched[way]:
            self.tally.problems.append(f"round {number}: the end differs from that of the untouched run")

    def _place(self, name: str) -> Place:
        (self.folder / name).mkdir()
        return Place(folder=self.folder / name, warm=self.warm)

    def _strike(self, started: Started, victim: Victim) -> int:
        """1 if there was somebody to strike."""
        until(
            lambda: "reached" in started.text or started.process.poll() is not None,
            f"a step in {started.journal}",
        )
        time.sleep(self.draw.uniform(0, LONGEST_SECONDS))
        ranks = started.ranks()
        if started.process.poll() is not None or len(ranks) < 2:
            return 0
        if victim == "everything":
            started.signal_all(signal.SIGKILL)
            return 1
        targets = {"rank": [self.draw.choice(ranks)], "ranks": ranks, "agent": [started.process.pid]}[victim]
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return 0
        return 1

    def _gone(self, started: Started) -> None:
        """What lives on after the blow may still save; then it must end by itself."""
        started.end()
        until(lambda: not started.ranks(), f"the end of all ranks of {started.journal}")


def campaign(folder: Path, warm: Path, *, kills: int, draw: random.Random) -> Campaign:
    """So many kills, each kind as often as the others."""
    scene = Campaign(folder=folder, warm=warm, draw=draw)
    kinds = get_args(Victim)
    victims: list[Victim] = [kinds[number % len(kinds)] for number in range(kills)]
    draw.shuffle(victims)
    for number, start in enumerate(range(0, kills, KILLS_A_ROUND)):
        scene.round(number, victims[start : start + KILLS_A_ROUND])
        print(f"round {number + 1}: {dict(scene.struck)}, problems {len(scene.tally.problems)}", flush=True)
    return scene


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder, began = Path(tempfile.mkdtemp(prefix="outlive-ranks-")), time.monotonic()
    warm = folder / "warm"
    server = Program([sys.executable, str(WARM), "serve", str(warm)], log=folder / "warm.log")
    try:
        server.wait_until(warm.exists, seconds=120)
        draw = random.Random(options.seed)  # noqa: S311 - where to strike, not a secret
        scene = campaign(folder, warm, kills=options.kills, draw=draw)
    finally:
        server.stop()
    tally = scene.tally
    for problem in tally.problems:
        print(f"problem: {problem}")
    print(
        f"kills survived: {dict(scene.struck)}; acknowledgements checked: {tally.acknowledged}; "
        f"bytes checked: {tally.bytes_checked:,}; problems: {len(tally.problems)}; "
        f"{time.monotonic() - began:.0f} s; journals in {folder}"
    )
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
