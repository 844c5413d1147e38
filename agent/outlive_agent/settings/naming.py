"""A name for a run that was given none: directory and script, so that the same command finds it again."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

SCRIPTS = (".py", ".ipynb")
_LONGEST = 64


def run_name_for(command: Sequence[str], directory: Path) -> str:
    """``python train.py`` in ``~/mnist`` is ``mnist-train``. Always fits FORMAT's rule for names."""
    name = "-".join(filter(None, (_clean(directory.resolve().name), _clean(_script(command)))))
    return name[:_LONGEST].rstrip("-._") or "run"


def script_at(command: Sequence[str]) -> int | None:
    """Where the first Python file or notebook is, or the module after ``-m``; None for any other program."""
    for at, argument in enumerate(command):
        if argument.endswith(SCRIPTS):
            return at
    return command.index("-m", 1) + 1 if "-m" in command[1:-1] else None


def _script(command: Sequence[str]) -> str:
    """What is run, not what runs it."""
    at = script_at(command)
    if at is None:
        return PurePosixPath(command[0]).stem if command else ""
    script = command[at]
    return PurePosixPath(script).stem if script.endswith(SCRIPTS) else script.rpartition(".")[2]


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
