"""Kill trainer, agent or both at random moments; prove after each that nothing acknowledged is lost.

    python tests/fault/kills.py --trainer 100 --agent 50 --both 50

Every round is one run: ten kills, then it is left to finish, and its end is compared bit for bit with
that of a run nobody touched. Prints the seed; ``--seed`` repeats the moments. Exit status 1 if anything was
lost or differs.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outlive.objects.location import open_store
from outlive.store.fetch import fetch
from outlive.store.layout import CheckpointId
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify

Victim = Literal["trainer", "agent", "both"]

EPOCHS, PAUSE_SECONDS = 45, 0.02
EVERY = 7
KILLS_A_ROUND = 10
LONGEST_LIFE_SECONDS = 8.0
SAVED = re.compile(rb"saved step ([0-9,]+)")


@dataclass(slots=True)
class Tally:
    """What was seen so far; ``problems`` empty means every promise held."""

    kills: dict[str, int] = field(default_factory=lambda: {"trainer": 0, "agent": 0, "both": 0})
    acknowledged: int = 0
    bytes_checked: int = 0
    problems: list[str] = field(default_factory=list)


def start(store: Path, run: str, journal: Path, *, pause: float, workers: int) -> "subprocess.Popen[bytes]":
    """Start ``outlive exec`` on the training; the journal of all lives of a run goes to one file."""
    training = [sys.executable, str(Path(__file__).with_name("training.py")), "--epochs", str(EPOCHS)]
    agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", str(store), "--run", run]
    with journal.open("ab") as output:
        return subprocess.Popen(
            [
                *agent,
                "--every",
                f"{EVERY} steps",
                "--",
                *training,
                "--pause",
                str(pause),
                "--workers",
                str(workers),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )


def children(pid: int) -> list[int]:
    """Direct children of a process; none if it is gone."""
    try:
        return [
            int(c)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for c in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Children, grandchildren and so on."""
    return [d for child in children(pid) for d in (child, *descendants(child))]


def strike(process: "subprocess.Popen[bytes]", victim: Victim) -> bool:
    """SIGKILL the victim. False if it isn't there (yet, or any more)."""
    targets = {"agent": [process.pid], "trainer": children(process.pid)[:1]}.get(
        victim, [process.pid, *descendants(process.pid)]
    )
    if process.poll() is not None or not targets:
        return False
    for pid in targets:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return True


def one_kill(store: Path, run: str, journal: Path, victim: Victim, moment: float, workers: int) -> bool:
    """One life, taken away ``moment`` seconds after its start. False if it ended by itself before."""
    process = start(store, run, journal, pause=PAUSE_SECONDS, workers=workers)
    try:
        process.wait(timeout=moment)
    except subprocess.TimeoutExpired:
        struck = strike(process, victim)
        process.wait(timeout=60)
        return struck
    return False


def check(store: Path, run: str, journal: Path, tally: Tally) -> None:
    """The newest checkpoint is whole, and not older than the newest one anybody was told of."""
    told = [int(step.replace(b",", b"")) for step in SAVED.findall(journal.read_bytes())]
    tally.acknowledged += len(told)
    opened = open_store(str(store))
    found = checkpoints(opened, run)
    newest = found[0].step if found else 0
    if told and newest < max(told):
        tally.problems.append(
            f"{run}: step {max(told)} was acknowledged, but the newest checkpoint is step {newest}"
        )
    if found:
        report = verify(opened, read_manifest(opened, run, found[0]))
        tally.bytes_checked += report.bytes
        tally.problems += [
            f"{run} {found[0]}: {problem.key}: {problem.message}" for problem in report.problems
        ]


def end_state(store: Path, run: str) -> tuple[CheckpointId, bytes, object]:
    """The last checkpoint of a run: which, its image, its values.

    Without the loops' position: after the last batch, or at the end of the epoch, is the same place.
    """
    opened = open_store(str(store))
    newest = checkpoints(opened, run)[0]
    manifest = read_manifest(opened, run, newest)
    image = bytearray(manifest.parts[0].bytes)
    (notes,) = fetch(opened, manifest, memoryview(image))
    values = json.loads(notes.values)
    del values["loops"]
    return newest, bytes(image), values


def finish(store: Path, run: str, journal: Path, tally: Tally, workers: int) -> None:
    """Let the run end."""
    process = start(store, run, journal, pause=0, workers=workers)
    if process.wait(timeout=300) != 0:
        tally.problems.append(f"{run}: the last life ended with {process.returncode}")


def campaign(directory: Path, victims: list[Victim], draw: random.Random) -> Tally:
    """All kills, in rounds, each round compared with the run nobody touched."""
    tally = Tally()
    store = directory / "store"
    finish(store, "untouched", directory / "untouched.journal", tally, 0)
    expected = end_state(store, "untouched")
    round_number = 0
    while victims:
        round_number += 1
        run, journal = f"round-{round_number}", directory / f"round-{round_number}.journal"
        workers = round_number % 3
        journal.touch()
        for _ in range(min(KILLS_A_ROUND, len(victims))):
            victim = victims.pop()
            if one_kill(store, run, journal, victim, draw.uniform(0, LONGEST_LIFE_SECONDS), workers):
                tally.kills[victim] += 1
            else:
                victims.insert(0, victim)
            check(store, run, journal, tally)
        finish(store, run, journal, tally, workers)
        found = end_state(store, run)
        if (found[0].step, *found[1:]) != (expected[0].step, *expected[1:]):
            tally.problems.append(f"{run}: the end differs from that of the untouched run")
        print(f"round {round_number}: {tally.kills}, problems {len(tally.problems)}", flush=True)
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for victim, number in (("trainer", 100), ("agent", 50), ("both", 50)):
        arguments.add_argument(f"--{victim}", type=int, default=number, metavar="KILLS")
    arguments.add_argument("--seed", type=int, default=None)
    options = arguments.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    draw = random.Random(seed)  # noqa: S311 - where to strike, not a secret
    counts: dict[Victim, int] = {"trainer": options.trainer, "agent": options.agent, "both": options.both}
    victims = [victim for victim, count in counts.items() for _ in range(count)]
    draw.shuffle(victims)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="outlive-kills-"))
    tally = campaign(directory, victims, draw)
    for problem in tally.problems:
        print(f"problem: {problem}")
    print(
        f"kills survived: {tally.kills}; acknowledgements checked: {tally.acknowledged}; "
        f"bytes checked: {tally.bytes_checked:,}; problems: {len(tally.problems)}; "
        f"{time.monotonic() - began:.0f} s; journals in {directory}"
    )
    return 1 if tally.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
