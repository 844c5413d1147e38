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

TRAINING: Final = Path("/opt/outlive/train")
"""Where a machine made from user-data has the training's packages."""
_LEAST: Final = (2, 4)


def software(environ: Mapping[str, str], *, training: Path = TRAINING) -> Finding:
    """Python, outlive and torch, in this environment or the training's."""
    ours = f"python {platform.python_version()}, outlive {__version__}"
    figures = {"python": platform.python_version(), "outlive": __version__}
    for place in (training, *_virtual(environ), Path(sys.prefix)):
        torch = _version("torch", place)
        if torch is None:
            continue
        where = "" if place == Path(sys.prefix) else f" in {place}"
        seen = f"{ours}, torch {torch}{where}"
        if _numbers(torch) < _LEAST:
            change = "pip install 'torch>=2.4'"
            return problem("software", f"{seen} is too old", change=change, torch=torch, **figures)
        return ok("software", seen, torch=torch, **figures)
    change = "run this in the environment that trains, or: pip install 'outlive[train]'"
    return warning("software", f"{ours}, no torch beside it", change=change, torch=None, **figures)


def _virtual(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    return [Path(named)] if named and Path(named).is_absolute() else []


def _version(name: str, prefix: Path) -> str | None:
    if prefix == Path(sys.prefix):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None
    places = [str(path) for path in prefix.glob("lib/python3*/*-packages")]
    found = [package.version for package in metadata.distributions(name=name, path=places)]
    return found[0] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
