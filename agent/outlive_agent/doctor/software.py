"""What is installed: read from what the packages say of themselves, since torch must not be loaded here."""

import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from outlive import __version__
from outlive_agent.doctor.finding import Finding, ok, problem, warning

_LEAST: Final = (2, 4)


def software(environ: Mapping[str, str], *, training: Path | None = None) -> Finding:
    """Python, outlive and torch: in ``training``, the training's environment, or else in this one."""
    ours = f"python {platform.python_version()}, outlive {__version__}"
    figures = {"python": platform.python_version(), "outlive": __version__}
    for place in [training] if training else [*_virtual(environ), Path(sys.prefix)]:
        torch = _version("torch", place)
        if torch is None:
            continue
        where = "" if place == Path(sys.prefix) else f" in {place}"
        seen = f"{ours}, torch {torch}{where}"
        if _numbers(torch) < _LEAST:
            change = "pip install 'torch>=2.4'"
            return problem("software", f"{seen} is too old", change=change, torch=torch, **figures)
        return ok("software", seen, torch=torch, **figures)
    where = f"in {training}" if training else "beside it"
    change = "run this in the environment that trains, or: pip install 'outlive[train]'"
    return warning("software", f"{ours}, no torch {where}", change=change, torch=None, **figures)


def _virtual(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    return [Path(named)] if named and Path(named).is_absolute() else []


def _version(name: str, prefix: Path) -> str | None:
    if prefix == Path(sys.prefix):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None
    places = [
        str(place) for path in prefix.glob("lib/python3*/*-packages") for place in (path, *_added(path))
    ]
    found = [package.version for package in metadata.distributions(name=name, path=places)]
    return found[0] if found else None


def _added(packages: Path) -> list[Path]:
    """What path files there add. They are read, never run: the training's user may have written them."""
    files = sorted(packages.glob("*.pth"))
    lines = [line.strip() for file in files for line in file.read_text(errors="replace").splitlines()]
    return [Path(line) for line in lines if line.startswith("/")]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
