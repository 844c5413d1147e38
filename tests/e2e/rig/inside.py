"""A command run inside a guest has what a process of the guest's has, and nothing of the host's."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.rig.processes import run

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_inside(
    leader: int, arguments: Sequence[str], *, timeout: float, check: bool, stdin: str
) -> subprocess.CompletedProcess[str]:
    """Run `arguments` as root in the namespaces of the guest whose PID 1 is `leader`.

    nsenter alone keeps the host's capabilities: a `date -s` run that way set the host's clock. So all that
    the guest's own PID 1 may not have is given up first.
    """
    bounding = _bounding_set(leader)
    drop = ("setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", "--ambient-caps=-all", "--")
    spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
    enter = ("nsenter", f"--target={leader}", *spaces, "--")
    clean = ("env", "-i", _PATH, "HOME=/root", "LANG=C.UTF-8")
    return run([*drop, *enter, *clean, *arguments], timeout=timeout, check=check, stdin=stdin)


def _bounding_set(pid: int) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            bits = int(line.split()[1], 16)
            kept = [f"+cap_{number}" for number in range(64) if bits >> number & 1]
            return ",".join(["-all", *kept])
    raise ProcessLookupError(pid)
