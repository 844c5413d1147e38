"""From memory to a durable checkpoint and back, on a real Ceph over TLS, beside what people use today.

Every system moves the same numbers, which don't compress, in turn, for some rounds. CPU seconds are those of
this side.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fakes.servers import s3_server
from peers import MIB, PEERS, Peer


@dataclass
class Result:
    """Wall and CPU seconds, one a round."""

    save: list[float] = field(default_factory=list)
    save_cpu: list[float] = field(default_factory=list)
    restore: list[float] = field(default_factory=list)
    restore_cpu: list[float] = field(default_factory=list)


def measured(work: Callable[[], None], wall: list[float], cpu: list[float]) -> None:
    """Do it, and write down what it took, programs that it ran included."""
    before, began = _cpu_seconds(), time.perf_counter()
    work()
    wall.append(time.perf_counter() - began)
    cpu.append(_cpu_seconds() - before)


def _cpu_seconds() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def run(peers: list[Peer], *, megabytes: int, rounds: int) -> dict[str, Result]:
    """All of them in turn, each round with other numbers. A state that comes back wrong ends it."""
    results = {peer.name: Result() for peer in peers}
    random = np.random.default_rng(0)
    for _ in range(rounds):
        image = random.standard_normal(megabytes * MIB // 4, dtype=np.float32)
        for peer in peers:
            result = results[peer.name]
            peer.prepare(image)
            measured(peer.save, result.save, result.save_cpu)
            measured(peer.restore, result.restore, result.restore_cpu)
            if not peer.same(image):
                raise SystemExit(f"{peer.name} brought back something else")
            peer.forget()
    return results


def show(console: Console, results: dict[str, Result], *, megabytes: int) -> None:
    """Medians, with the slowest round behind them."""
    gigabytes = megabytes * MIB / 1e9
    table = Table(
        title=f"{megabytes} MiB to Ceph over TLS and back", title_justify="left", title_style="bold"
    )
    for heading in ("", "to durable", "worst", "CPU s/GB", "restored", "worst", "CPU s/GB"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for name, result in results.items():
        table.add_row(
            name,
            *_seconds(result.save),
            f"{statistics.median(result.save_cpu) / gigabytes:.2f}",
            *_seconds(result.restore),
            f"{statistics.median(result.restore_cpu) / gigabytes:.2f}",
        )
    console.print(table)


def _seconds(values: list[float]) -> tuple[str, str]:
    return f"{statistics.median(values):.1f} s", f"{max(values):.1f}"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, default=Path("build"))
    arguments.add_argument("--megabytes", type=int, default=1024)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    with (
        s3_server("rgw", memory_bytes=12 << 30) as server,
        tempfile.TemporaryDirectory(prefix="outlive-bench-", dir="/dev/shm") as folder,
    ):
        peers = [kind(server, Path(folder) / str(number)) for number, kind in enumerate(PEERS)]
        results = run(peers, megabytes=options.megabytes, rounds=options.rounds)
    options.build.mkdir(exist_ok=True)
    figures = {name: asdict(result) for name, result in results.items()}
    (options.build / "transfer.json").write_text(json.dumps(figures, indent=1))
    show(Console(highlight=False), results, megabytes=options.megabytes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
