"""How long systemd lets outlive's units stop, asked of systemd itself."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from outlive_agent.units import parse_duration

AGENT: Final = "outlive-agent.service"
TRAIN: Final = "outlive-train.service"
_ASKED: Final = ("Id", "LoadState", "TimeoutStopUSec")
_PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTimes:
    """Seconds from the signal to the kill. The agent's grows while an upload makes progress."""

    agent: float
    train: float


def unit_times(*, systemctl: Sequence[str] = ("systemctl",)) -> UnitTimes | None:
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
    return UnitTimes(agent=_seconds(found[AGENT]), train=_seconds(found[TRAIN]))


def _pairs(block: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition("=") for line in block.splitlines())]


def _seconds(unit: Mapping[str, str]) -> float:
    """``1min 30s`` as systemd writes it."""
    text = re.sub(r"\d+us", "", unit.get("TimeoutStopUSec", "")).strip()
    try:
        return parse_duration(text).total_seconds()
    except ValueError:
        return inf
