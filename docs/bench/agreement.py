"""What a step costs each rank for the agreement with the others, when nothing is due.

    python docs/bench/agreement.py [--ranks 2]

Every rank times ``run.step()`` 20,000 times under the real torchrun and agent, among others and alone; the
difference of the medians is the agreement's. Printed in microseconds.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

STEPS = 20_000


def measure() -> None:
    """One rank."""
    import torch.distributed as dist

    import outlive

    if os.environ.get("WORLD_SIZE"):
        dist.init_process_group("gloo")
    with outlive.attach(seen=0) as run:
        took = []
        for _ in run.epochs(1):
            for step in run.batches(range(STEPS)):
                began = time.perf_counter_ns()
                run.step()
                took.append(time.perf_counter_ns() - began)
                if step % 100 == 0:
                    time.sleep(0.01)  # so that the other threads have their turn, as during a forward pass
    late = quantiles(took, n=100)[98]
    print(f"STEP {median(took) / 1000:.2f} {late / 1000:.2f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def run(ranks: int) -> list[tuple[float, float]]:
    """Median and 99th percentile of each rank."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", folder, "--run", "steps"]
        command = [*agent, "--every", "10 min", "--", sys.executable, *torchrun, __file__, "--measure"]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=Path.home())
    found = re.findall(r"STEP ([0-9.]+) ([0-9.]+)", done.stdout)
    if len(found) < ranks:
        raise SystemExit(done.stderr[-2000:])
    return [(float(middle), float(late)) for middle, late in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure()
        return
    ((alone, _),) = run(1)
    among = run(options.ranks)
    for rank, (middle, late) in enumerate(among):
        print(
            f"rank {rank} of {options.ranks}: {middle:.1f} us a step (99 %: {late:.1f}); alone {alone:.1f}:"
        )
        print(f"  the agreement costs {middle - alone:+.1f} us")


if __name__ == "__main__":
    main()
