"""What systemd knows of outlive's units: how long they may take to stop, and what the training runs in."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from outlive_agent.units import parse_duration

AGENT: Final = "outlive-agent.service"
TRAIN: Final = "outlive-train.service"
_ASKED: Final = ("Id", "LoadState", "TimeoutStopUSec", "Environment")
_PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsSeen:
    """``agent``, ``train``: seconds from the signal to the kill; the agent's grow while an upload moves.

    ``environment``: the training's Python environment.
    """

    agent: float
    train: float
    environment: Path | None = None


def units_seen(*, systemctl: Sequence[str] = ("systemctl",)) -> UnitsSeen | None:
    """None where systemd is not, or the units aren't."""
    command = [*systemctl, "show", f"--property={','.join(_ASKED)}", AGENT, TRAIN]
    try:
        told = subprocess.run(  # noqa: S603 - a constant command
            command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    units = [dict(_pairs(block)) for block in told.strip().split("\n\n")]
    found = {unit.get("Id"): unit for unit in units if unit.get("LoadState") == "loaded"}
    if not {AGENT, TRAIN} <= found.keys():
        return None
    venv = re.search(r"(?:^| )VIRTUAL_ENV=(/[^ ]+)", found[TRAIN].get("Environment", ""))
    return UnitsSeen(
        agent=_seconds(found[AGENT]),
        train=_seconds(found[TRAIN]),
        environment=None if venv is None else Path(venv[1]),
    )


def _pairs(block: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition("=") for line in block.splitlines())]


def _seconds(unit: Mapping[str, str]) -> float:
    """``1min 30s`` as systemd writes it."""
    text = re.sub(r"\d+us", "", unit.get("TimeoutStopUSec", "")).strip()
    try:
        return parse_duration(text).total_seconds()
    except ValueError:
        return inf
