"""What it costs to hear a reclaim: the CPU time of the busiest source, Azure's, asked once a second.

A process that runs nothing but that source, as the agent does, against what ``outlive emulate azure`` runs.
Its CPU time is the kernel's own count for all of its threads, from /proc, so other load does not enter.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from outlive_agent.emulate.server import Emulator

SECONDS = 120
STARTED_REQUESTS = 3
"""So many questions, and its imports and first connection are behind it."""
TARGET_PERCENT = 0.2
_WATCHER = """
import io, sys, threading
from outlive_agent.journal import Journal
from outlive_agent.sources.azure import Azure
from outlive_agent.sources.polling import Polling
source = Polling(Azure(sys.argv[1]), journal=Journal(sys.stderr))
threading.Thread(target=source.run, args=(print, threading.Event()), daemon=True).start()
sys.stdin.read()
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, default=Path("build"))
    arguments.add_argument("--seconds", type=int, default=SECONDS)
    options = arguments.parse_args()
    with Emulator("azure") as emulator:
        command = [sys.executable, "-c", _WATCHER, emulator.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as watcher:
            while len(emulator.requests) < STARTED_REQUESTS:
                if watcher.poll() is not None:
                    raise SystemExit("the watcher has ended")
                time.sleep(0.05)
            asked, began, before = len(emulator.requests), time.monotonic(), cpu_seconds(watcher.pid)
            time.sleep(options.seconds)
            used, seconds = cpu_seconds(watcher.pid) - before, time.monotonic() - began
            asked = len(emulator.requests) - asked
            watcher.kill()
    percent = used / seconds * 100
    options.build.mkdir(parents=True, exist_ok=True)
    figures = {"cpu_seconds": used, "seconds": seconds, "questions": asked, "core_percent": percent}
    (options.build / "watcher.json").write_text(json.dumps(figures, indent=1))
    cost = f"{used:.3f} s of CPU, {percent:.3f} % of one core (at most {TARGET_PERCENT} %)"
    print(f"watching Azure: {asked} questions in {seconds:.0f} s cost {cost}")
    return 0 if percent <= TARGET_PERCENT and asked else 1


def cpu_seconds(pid: int) -> float:
    """Of all threads, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
