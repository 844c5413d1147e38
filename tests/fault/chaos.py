"""Kills and faults of the store at once: nothing acknowledged is lost.

    python tests/fault/chaos.py --runs 15

Each run has six lives, one after the other, on a server behind a proxy in which a random part of all
requests goes wrong: refused, cut, altered, shortened, or its answer lost. Most lives are killed at a random
moment, the agent alone or with its training. After each, past the proxy: the newest checkpoint restores, is
at or above what was acknowledged, and nothing was passed over; in the end all that is there verifies. Exit
status 1 otherwise. Prints the seed; ``--seed`` repeats the choices, though not the moments.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fakes import faults
from fakes.agents import TRAINER
from fakes.checkpoints import Passed
from fakes.proxy import Proxy, Request, proxied
from fakes.servers import Server, s3_server
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store.fetch import restore_newest
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.verify import verify

LIVES = 6
PATIENCE_SECONDS = 300.0
RATES = (0.02, 0.1, 0.2)
SIZES = (4096, 304_000, 3_000_000)
BUSY = faults.refused(503, "SlowDown")
SENDING = (BUSY, faults.refused(500, "InternalError"), faults.answer_lost, faults.cut_on_the_way_up)
READING = (BUSY, faults.refused(502, ""), faults.cut_on_the_way_down)
FETCHING = (*READING, faults.altered, faults.shortened)
ENDS = ("none", "SIGTERM", "agent killed", "both killed")


@dataclass(slots=True)
class Weather:
    """How much goes wrong at the moment."""

    draw: random.Random
    rate: float = 0.0

    def __call__(self, request: Request) -> faults.Fault | None:
        if self.draw.random() >= self.rate:
            return None
        if request.method == "GET":
            return self.draw.choice(FETCHING if "/chunks/" in request.path else READING)
        return self.draw.choice(SENDING if request.method == "PUT" else SENDING[:3])


@dataclass(slots=True)
class Tally:
    """What was seen so far; ``problems`` empty means every promise held."""

    lives: int = 0
    kills: int = 0
    faults: int = 0
    acknowledged: int = 0
    verified_bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Scene:
    """One run: through the proxy as its lives see it, and as it is."""

    name: str
    location: str
    environ: dict[str, str]
    real: ObjectStore
    tally: Tally
    reached: int = 0
    """The highest step of which anyone was told that it is saved."""

    def live(self, draw: random.Random, *, size: int) -> None:
        """One life, to its end or a violent one."""
        agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", self.location, "--run", self.name]
        trainer = [*TRAINER, "--steps", str(self.reached + draw.randrange(10, 60)), "--pause", "0.02"]
        command = [*agent, "--every", "5 steps", "--keep", "2", "--", *trainer, "--bytes", str(size)]
        process = subprocess.Popen(
            command,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        end = draw.choice(ENDS)
        if end != "none":
            with suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.3, 3.5))  # a random moment: there is nothing to wait for
            self.tally.kills += end != "SIGTERM" and process.poll() is None
            _end(process, end)
        try:
            text, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            _end(process, "both killed")
            text, _ = process.communicate()
            self.tally.problems.append(f"{self.name} hung after {end}:\n{text[-2000:]}")
        told = [int(step.replace(",", "")) for step in re.findall(r"saved step ([\d,]+)", text)]
        self.reached = max([self.reached, *told])
        self.tally.lives += 1
        self.tally.acknowledged += len(told)
        if "/outlive_agent/" in text:
            self.tally.problems.append(f"{self.name}: a trace of the agent after {end}:\n{text[-2000:]}")

    def judge(self) -> None:
        """The promises, past the proxy."""
        passed = Passed()
        found = restore_newest(self.real, self.name, _memory, on_damaged=passed)
        if self.reached and (found is None or found.manifest.step < self.reached):
            have = "nothing" if found is None else f"step {found.manifest.step}"
            self.tally.problems.append(f"{self.name}: {self.reached} was acknowledged, there is {have}")
        self.tally.problems += [f"{self.name}: {damaged} is damaged" for damaged in passed.ids]

    def verify(self) -> None:
        """Every byte that is left."""
        for checkpoint in checkpoints(self.real, self.name):
            report = verify(self.real, read_manifest(self.real, self.name, checkpoint))
            self.tally.verified_bytes += report.bytes
            self.tally.problems += [f"{self.name}: {problem.message}" for problem in report.problems]


def _memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _end(process: "subprocess.Popen[str]", how: str) -> None:
    with suppress(ProcessLookupError):
        if how == "both killed":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)


def _scene(server: Server, proxy: Proxy, name: str, home: Path, tally: Tally) -> Scene:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OUTLIVE_")}
    here = {"XDG_RUNTIME_DIR": str(home), "HOME": str(home), "OUTLIVE_PROVIDER": "none"}
    environ = {**clean, **here, **server.environment(), "OUTLIVE_S3_ENDPOINT": proxy.endpoint}
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    real = open_store(server.location("chaos"), credentials=keys, endpoint=server.endpoint)
    return Scene(name=name, location=server.location("chaos"), environ=environ, real=real, tally=tally)


def campaign(server: Server, *, runs: int, lives: int, draw: random.Random) -> Tally:
    """So many runs, one after the other."""
    tally = Tally()
    weather = Weather(random.Random(draw.random()))  # noqa: S311
    with proxied(server.endpoint, weather) as proxy:
        for _ in range(runs):
            with tempfile.TemporaryDirectory(prefix="outlive-chaos-") as home:
                scene = _scene(server, proxy, f"run-{draw.randrange(1 << 32):08x}", Path(home), tally)
                size, weather.rate = draw.choice(SIZES), draw.choice(RATES)
                for _ in range(lives):
                    scene.live(draw, size=size)
                    scene.judge()
                scene.verify()
        tally.faults = proxy.hit
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--runs", type=int, default=15)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    with s3_server("moto") as server:
        draw = random.Random(options.seed)  # noqa: S311 - what happens, not a secret
        tally = campaign(server, runs=options.runs, lives=LIVES, draw=draw)
    print(
        f"{options.runs} runs, {tally.lives} lives, kills survived: {tally.kills}; faults injected: "
        f"{tally.faults}; acknowledgements: {tally.acknowledged}; bytes checked: {tally.verified_bytes:,}; "
        f"problems: {len(tally.problems)}; {time.monotonic() - began:.0f} s"
    )
    print("\n".join(tally.problems))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
