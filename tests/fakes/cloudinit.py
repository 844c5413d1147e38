"""cloud-init's own schema check, of two Debian releases; unpacked only, since installed it runs at boot."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CACHE = Path(__file__).parents[2] / "build/cloud-init"
_SOURCES = """\
deb [signed-by={keyring}] http://deb.debian.org/debian bookworm main
deb [signed-by={keyring}] http://deb.debian.org/debian trixie main
"""
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PURE = ("python3-configobj", "python3-oauthlib")
"""What it imports beside packages that this project's tests have anyway."""
_CHECK = """
import sys
from cloudinit.cmd.main import main
sys.argv = ["cloud-init", "schema", "--config-file", sys.argv[1]]
sys.exit(main())
"""


def check_schema(file: Path, release: str) -> "subprocess.CompletedProcess[str]":
    """What ``cloud-init schema --config-file`` says in this Debian release."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_packages(release)), "LANG": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHECK, str(file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _packages(release: str) -> Path:
    """The folder to import cloud-init from; fetched once."""
    folder = _CACHE / release
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not (folder / "complete").exists():
            _fetch(folder, release)
            (folder / "complete").touch()
    return folder / "usr/lib/python3/dist-packages"


def _fetch(folder: Path, release: str) -> None:
    """By apt, so that signatures are checked; with lists of our own, so that the host's stay as they are."""
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(_SOURCES.format(keyring=_KEYRING))
    options = [
        f"-oDir::Etc::SourceList={folder}/sources.list",
        "-oDir::Etc::SourceParts=-",
        f"-oDir::State::Lists={folder}/lists",
        f"-oDir::Cache={folder}",
        "-oAcquire::Languages=none",
        "-oAPT::Sandbox::User=root",
    ]
    _run(["apt-get", "-q", *options, "update"], folder)
    packages = [f"cloud-init/{release}", *(f"{name}/bookworm" for name in _PURE)]
    _run(["apt-get", "-q", *options, "download", *packages], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(folder)], folder)


def _run(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
