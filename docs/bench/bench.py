"""What a save costs the training, how soon it is durable, and how fast a run is back. Run by ``make bench``.

Writes ``build/bench.json`` and prints a table. The peers are ``torch.save`` and torch's ``async_save`` of the
same state to the same disk, in the same training, in turn with ours: a stop is what the training's thread
loses, and the whole run says what the copying and the upload beside it cost. The agent at rest guards a
training that sleeps, on a real S3 server.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fakes.servers import s3_server

REST_SECONDS = 30
WAYS = ("never", "outlive", "torch.save", "async_save")


def outlive_exec(store: str, run: str, *command: str) -> list[str]:
    """The command line of a training under the agent that saves only when it is asked to."""
    agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", store, "--run", run]
    return [*agent, "--every", "10h", "--", sys.executable, *command]


def life(build: Path, way: str, megabytes: int, saves: int) -> dict[str, Any]:
    """One training that saves in one way; ours runs under its agent."""
    report = build / "report.json"
    report.unlink(missing_ok=True)
    command = [str(Path(__file__).with_name("training.py")), "--way", way, "--report", str(report)]
    command += ["--megabytes", str(megabytes), "--saves", str(saves)]
    if way == "outlive":
        command = outlive_exec(str(build / "store"), "bench", *command)
    else:
        command = [sys.executable, *command]
    with (build / "journal.txt").open("ab") as journal:
        subprocess.run(command, check=True, stdout=journal, stderr=journal)
    return dict(json.loads(report.read_text()))


def measure(build: Path, megabytes: int, saves: int, rounds: int) -> dict[str, Any]:
    """One state size: every way in turn, several times over; then a life that only resumes."""
    lives: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        shutil.rmtree(build / "store", ignore_errors=True)
        for way in WAYS:
            lives[way].append(life(build, way, megabytes, saves))
    ours = lives["outlive"]
    second = life(build, "outlive", megabytes, saves)
    size = ours[0]["bytes"]
    idle = statistics.median(one["loop_seconds"] for one in lives["never"])
    case: dict[str, Any] = {
        "megabytes": size / 1e6,
        "first_stall_ms": statistics.median(one["stalls"][0] for one in ours) * 1e3,
        "step_without_save_us": ours[0]["idle_step"] * 1e6,
        "restore_seconds": second["attach_seconds"],
        "ways": {},
    }
    for way in WAYS[1:]:
        steady = sorted(stall for one in lives[way] for stall in one["stalls"][1:])
        whole = statistics.median(one["loop_seconds"] for one in lives[way])
        case["ways"][way] = {
            "stalls": len(steady),
            "median_ms": statistics.median(steady) * 1e3,
            "p99_ms": steady[min(len(steady) - 1, len(steady) * 99 // 100)] * 1e3,
            "median_ms_per_gib": statistics.median(steady) * 1e3 * 2**30 / size,
            "overhead_percent": (whole / idle - 1) * 100,
        }
    return case


def agent_at_rest(build: Path) -> dict[str, float]:
    """Resident memory and share of one core of an agent whose training sleeps."""
    nap = REST_SECONDS + 12
    sleeper = f"import outlive, time\nwith outlive.attach(x=0) as run:\n run.step(); time.sleep({nap})"
    told = build / "rest.txt"
    with s3_server("moto") as server, told.open("wb") as journal:
        keys = {
            "OUTLIVE_S3_ACCESS_KEY_ID": server.access_key,
            "OUTLIVE_S3_SECRET_ACCESS_KEY": server.secret_key,
        }
        process = subprocess.Popen(
            outlive_exec(f"s3://{server.bucket}/bench", "rest", "-c", sleeper),
            stdout=journal,
            stderr=journal,
            env={**os.environ, **keys, "OUTLIVE_S3_ENDPOINT": server.endpoint},
        )
        _wait_for(told, b"training: step", process)
        before = _cpu_seconds(process.pid)
        time.sleep(REST_SECONDS)
        used = _cpu_seconds(process.pid) - before
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.wait(timeout=60)
    resident = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))
    return {"resident_megabytes": resident / 1e6, "core_percent": used / REST_SECONDS * 100}


def _wait_for(file: Path, words: bytes, process: "subprocess.Popen[bytes]") -> None:
    """Until the agent's beginning is over, however long that takes here."""
    while words not in file.read_bytes():
        if process.poll() is not None:
            raise SystemExit(f"the agent ended before its training began; see {file}")
        time.sleep(0.05)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(console: Console, cases: list[dict[str, Any]], rest: dict[str, float]) -> None:
    """The figures, one column a state size."""
    table = Table(title="What a save costs", title_justify="left", title_style="bold")
    table.add_column("")
    for case in cases:
        table.add_column(f"{case['megabytes']:,.0f} MB", justify="right")
    for way in WAYS[1:]:
        figures = [case["ways"][way] for case in cases]
        cells = [f"{one['median_ms']:,.1f} / {one['p99_ms']:,.1f} ms" for one in figures]
        table.add_row(f"{way}: training stops for a save, median / p99", *cells)
        cells = [f"{one['overhead_percent']:+.0f} %" for one in figures]
        table.add_row(f"{way}: a run that saves every 10 steps, against one that never does", *cells)
    table.add_row("outlive: first save of a life", *[f"{case['first_stall_ms']:,.0f} ms" for case in cases])
    table.add_row("a step without a save", *[f"{case['step_without_save_us']:.1f} µs" for case in cases])
    table.add_row(
        "attach with restore, beyond import", *[f"{case['restore_seconds']:.2f} s" for case in cases]
    )
    console.print(table)
    memory, share = rest["resident_megabytes"], rest["core_percent"]
    console.print(f"agent at rest, S3 store open: {memory:.0f} MB resident, {share:.2f} % of one core")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, default=Path("build"))
    arguments.add_argument("--megabytes", type=int, nargs="*", default=[100, 1000])
    arguments.add_argument("--saves", type=int, default=9)
    arguments.add_argument("--rounds", type=int, default=2)
    options = arguments.parse_args()
    cases = []
    build = (options.build / "bench").resolve()
    for megabytes in options.megabytes:
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir(parents=True)
        cases.append(measure(build, megabytes, options.saves, options.rounds))
    rest = agent_at_rest(build)
    (options.build / "bench.json").write_text(json.dumps({"cases": cases, "agent_at_rest": rest}, indent=1))
    show(Console(highlight=False), cases, rest)
    shutil.rmtree(build, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
