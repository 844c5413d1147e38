"""Host programs that end with the test process, and say what they said when they fail."""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.rig.errors import RigError

# The kernel kills a tethered child when the *thread* that forked it ends, so one thread, which lasts as
# long as the process, forks them all. Else a guest booted from a test's own thread would die with it.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig-spawner")

TETHER = ("setpriv", "--pdeathsig", "KILL", "--")
"""Kills the program when this process dies, however it dies."""

SANDBOX = ("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--")
"""Own mounts and processes; both vanish together with the program, so nothing is left on the host."""


def run(
    arguments: Sequence[str],
    *,
    timeout: float = 60,
    check: bool = True,
    stdin: str = "",
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; a failure carries the last of what it printed."""
    done = subprocess.run(
        list(arguments), input=stdin, capture_output=True, text=True, timeout=timeout, pass_fds=pass_fds
    )
    if check and done.returncode != 0:
        said = (done.stderr + done.stdout).strip()[-2000:]
        raise RigError(f"{' '.join(arguments)} failed with {done.returncode}: {said}")
    return done


def build(arguments: Sequence[str], *, timeout: float, log: Path) -> None:
    """Run a long program that may mount things, and that must not survive this process."""
    with log.open("wb") as output:
        process = spawn([*TETHER, *SANDBOX, *arguments], output=output.fileno())
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RigError(f"{arguments[0]} took longer than {timeout:.0f} s", hint=f"see {log}") from None
        finally:
            process.kill()
            process.wait()
    if code != 0:
        said = log.read_text(errors="replace").strip()[-2000:]
        raise RigError(f"{' '.join(arguments)} failed with {code}: {said}", hint=f"all of it is in {log}")


def spawn(arguments: Sequence[str], *, output: int, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a program with nothing to read and `output` to write to; begin `arguments` with TETHER."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=pass_fds
        )

    return _spawner.submit(start).result()
