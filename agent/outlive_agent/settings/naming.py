"""A name for a run that was given none: directory and script, so that the same command finds it again."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

_LONGEST = 64


def run_name_for(command: Sequence[str], directory: Path) -> str:
    """``python train.py`` in ``~/mnist`` is ``mnist-train``. Always fits FORMAT's rule for names."""
    name = "-".join(filter(None, (_clean(directory.resolve().name), _clean(_script(command)))))
    return name[:_LONGEST].rstrip("-._") or "run"


def _script(command: Sequence[str]) -> str:
    """What is run, not what runs it: the first Python file, the module after ``-m``, or the program."""
    for argument in command:
        if argument.endswith(".py"):
            return PurePosixPath(argument).stem
    if "-m" in command[1:-1]:
        return command[command.index("-m", 1) + 1].rpartition(".")[2]
    return PurePosixPath(command[0]).stem if command else ""


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
