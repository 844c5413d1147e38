"""Writers that all believe they own one run, at once, on a real Ceph: nothing acknowledged is lost.

    python tests/fault/races.py --rounds 200

In each round two or three writers claim lives of one run, resume, save and prune as in a full store, so that
no age protects anything, with pauses of random length between any two requests. Afterwards: every life had
one owner; whatever was acknowledged is at or below what each newer life resumed from; the newest acknowledged
checkpoint restores. Exit status 1 otherwise. Prints the seed; ``--seed`` repeats the pauses.
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from fakes.checkpoints import Passed, begin, snapshot
from fakes.servers import Server, s3_server
from fakes.stores import Wrapped
from outlive.errors import StoreError, Superseded
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store.fetch import restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.prune import prune
from outlive.store.retention import Keep

_T = TypeVar("_T")

SAVES = 4
ROUNDS_AT_ONCE = 4
LONGEST_PAUSE_SECONDS = 0.02
FROZEN = bytes(range(256)) * 16


@dataclass(slots=True)
class Tally:
    """What was seen so far; ``problems`` empty means every promise held."""

    rounds: int = 0
    lives: int = 0
    acknowledged: int = 0
    superseded: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Writer:
    """One machine: its life, what it resumed from, and what it was told is saved."""

    life: int
    parent: CheckpointId | None
    nonce: str
    acknowledged: list[CheckpointId] = field(default_factory=list)
    superseded: bool = False


class Hesitant(Wrapped):
    """Waits before and after each request, so that others come in between."""

    def __init__(self, store: ObjectStore, draw: random.Random) -> None:
        super().__init__(store)
        self._draw = draw
        self._lock = threading.Lock()

    def around(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        with self._lock:
            before, after = (self._draw.uniform(0, LONGEST_PAUSE_SECONDS) for _ in range(2))
        time.sleep(before)
        done = request()
        time.sleep(after)
        return done


def write(store: ObjectStore, run: str, delay: float) -> Writer:
    """One machine's life, until it is over or taken over."""
    time.sleep(delay)
    owner = begin(store, run)
    writer = Writer(owner.life.number, owner.parent.id if owner.parent else None, owner.life.nonce)
    first = owner.parent.step if owner.parent else 0
    try:
        for step in range(first + 1, first + 1 + SAVES):
            content = f"{owner.life.nonce} {step}".encode()
            writer.acknowledged.append(owner.commit(snapshot(step, FROZEN, content)).manifest.id)
            prune(store, run, Keep(last=2), owner=owner, full=True)
    except Superseded:
        writer.superseded = True
    return writer


def judge(store: ObjectStore, run: str, writers: list[Writer]) -> list[str]:
    """Every promise that was broken."""
    found = []
    if len({writer.life for writer in writers}) != len(writers):
        found.append(f"{run}: a life had two owners: {sorted(writer.life for writer in writers)}")
    for older in writers:
        for newer in writers:
            for told in older.acknowledged:
                if newer.life > older.life and (newer.parent is None or newer.parent < told):
                    found.append(f"{run}: {told} was acknowledged, life {newer.life} took {newer.parent}")
    newest = max((told for writer in writers for told in writer.acknowledged), default=None)
    passed = Passed()
    restored = restore_newest(store, run, lambda size: memoryview(bytearray(size)), on_damaged=passed)
    if passed.ids:
        found.append(f"{run}: damaged {passed.ids}")
    if newest is not None and (restored is None or restored.manifest.id < newest):
        found.append(f"{run}: {newest} was acknowledged and does not restore")
    return found


def race(stores: list[ObjectStore], run: str, draw: random.Random) -> tuple[list[Writer], list[str]]:
    """One round: the writers, and every promise that was broken."""
    delays = [draw.uniform(0, 0.3) for _ in range(draw.choice([2, 3]))]
    hesitant = [Hesitant(store, random.Random(draw.random())) for store in stores]  # noqa: S311
    with ThreadPoolExecutor(len(delays)) as pool:
        futures = [
            pool.submit(write, store, run, delay) for store, delay in zip(hesitant, delays, strict=False)
        ]
    try:
        writers = [future.result() for future in futures]
    except StoreError as error:
        return [], [f"{run}: {error}"]
    return writers, judge(stores[0], run, writers)


def campaign(server: Server, rounds: int, draw: random.Random) -> Tally:
    """So many rounds, each a run of its own, some at a time: most of each is waiting."""
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    stores = [
        open_store(
            server.location("races"), credentials=keys, endpoint=server.endpoint, ca_bundle=server.ca_bundle
        )
        for _ in range(3)
    ]
    series = f"{draw.randrange(1 << 32):08x}"
    seeds = [draw.random() for _ in range(rounds)]
    tally = Tally()
    with ThreadPoolExecutor(ROUNDS_AT_ONCE) as pool:
        outcomes = pool.map(
            lambda number: race(stores, f"race-{series}-{number}", random.Random(seeds[number])),  # noqa: S311
            range(rounds),
        )
        for writers, problems in outcomes:
            tally.rounds += 1
            tally.lives += len(writers)
            tally.acknowledged += sum(len(writer.acknowledged) for writer in writers)
            tally.superseded += sum(writer.superseded for writer in writers)
            tally.problems += problems
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    with s3_server("rgw") as server:
        tally = campaign(server, options.rounds, random.Random(options.seed))  # noqa: S311
    print(
        f"{tally.rounds} rounds of two or three writers, {tally.lives} lives, {tally.superseded} superseded, "
        f"{tally.acknowledged} checkpoints acknowledged, {len(tally.problems)} problems, "
        f"{time.monotonic() - began:.0f} s"
    )
    print("\n".join(tally.problems))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
