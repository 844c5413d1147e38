"""The command line, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def verb(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """``outlive ARGUMENTS``, which must end with 0."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    done = subprocess.run(
        [sys.executable, "-m", "outlive_agent", *arguments],
        env={**environ, "OMP_NUM_THREADS": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
