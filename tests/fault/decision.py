"""How long a machine takes to decide what to resume from, where a run has very many checkpoints.

    python tests/fault/decision.py [--checkpoints 10000]

Fills a directory and a Ceph over TLS with a run of a hundred lives, and with one of a single life; then
claims the next life and finds the newest manifest, a few times. Exit status 1 if that is another one than was
written last, or asks the store more than a short run does. (A listing counts once, whatever its pages.)
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fakes.checkpoints import IDENTITY, begin, snapshot
from fakes.servers import s3_server
from fakes.stores import CountingStore
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.local import LocalStore
from outlive.objects.location import open_store
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.lives import Claim, claim
from outlive.store.newest import newest_first, read_manifest

RUN = "gpt"
TIMES = 3
MOST_QUESTIONS = 8


def fill(store: ObjectStore, *, checkpoints: int, lives: int) -> CheckpointId:
    """As many manifests, spread evenly; returns the newest."""
    owner = begin(store, RUN)
    manifest = owner.commit(snapshot(1, b"x" * 64)).manifest
    told = Claim.decode(store.get(layout.life(RUN, 1), at_most=1 << 20))
    bodies = [(layout.life(RUN, life), replace(told, life=life).encode()) for life in range(2, lives + 1)]
    for number in range(1, checkpoints):
        one = replace(manifest, life=number * lives // checkpoints + 1, step=number + 1)
        bodies.append((layout.manifest(RUN, one.id), one.encode()))
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(lambda each: store.put(*each), bodies):
            pass
    return CheckpointId(lives, checkpoints)


def decide(store: ObjectStore, newest: CheckpointId) -> tuple[float, int, bool]:
    """Seconds, questions to the store of the last time, and whether it was the right one each time."""
    best, questions, right = float("inf"), 0, True
    for _ in range(TIMES):
        claim(store, RUN, identity=IDENTITY)
        counting = CountingStore(store)
        began = time.perf_counter()
        found = read_manifest(counting, RUN, next(newest_first(counting, RUN)))
        best = min(best, time.perf_counter() - began)
        questions, right = len(counting.seen), right and found.id == newest
    return best, questions, right


@contextmanager
def stores() -> Iterator[dict[str, ObjectStore]]:
    """A directory, and a bucket."""
    with tempfile.TemporaryDirectory(prefix="outlive-decision-") as folder, s3_server("rgw") as server:
        keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
        found: dict[str, ObjectStore] = {}
        for lives in (1, 100):
            found[f"directory, lives: {lives}"] = LocalStore(Path(folder) / str(lives))
            found[f"Ceph, lives: {lives}"] = open_store(
                server.location(f"lives-{lives}"),
                credentials=keys,
                endpoint=server.endpoint,
                ca_bundle=server.ca_bundle,
            )
        yield found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--checkpoints", type=int, default=10_000)
    options = arguments.parse_args()
    well = True
    with stores() as all_of_them:
        for name, store in all_of_them.items():
            lives = int(name.rpartition(" ")[2])
            newest = fill(store, checkpoints=options.checkpoints, lives=lives)
            seconds, questions, right = decide(store, newest)
            well = well and right and questions <= MOST_QUESTIONS
            print(
                f"{name}, checkpoints: {options.checkpoints:,}: "
                f"{'decided' if right else 'decided WRONGLY'} in {seconds:.3f} s, {questions} questions",
                flush=True,
            )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
