"""Python environments for servers whose packages can't live beside ours. Each is built once a machine."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def environment(name: str, packages: Sequence[str]) -> Path:
    """The folder of an environment that holds `packages`; who comes second waits for who builds it."""
    digest = hashlib.sha256("\n".join((sys.version, *packages)).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlive-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{name}-{digest}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages)
            (folder / "ready").touch()
    return folder


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
