"""What needs torch is done by a Python that has it: this one, or the one that the training uses."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlive.errors import ConfigError, OutliveError
from outlive.programs import program

_MODULE = "outlive.dcp.convert"
_MISSING = ("No module named 'torch'", "No module named 'numpy'", "No module named 'outlive'")


def convert(arguments: Sequence[str], *, python: Path | None) -> dict[str, Any]:
    """Run one conversion of :mod:`outlive.dcp.convert`, and return what it says.

    ``ConfigError`` if there is no torch, or the files can't be converted.
    """
    interpreter = str(python or sys.executable)
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [*program(_MODULE, python=interpreter), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ConfigError(f"{interpreter} can't be run: {error.strerror}", hint="--python PATH") from error
    try:
        said = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise _failure(interpreter, done.stderr, done.returncode) from None
    if "error" in said:
        raise ConfigError(str(said["error"]), hint=str(said.get("hint", "")))
    if done.returncode or not isinstance(said, dict):
        raise _failure(interpreter, done.stderr, done.returncode)
    return said


def _failure(interpreter: str, stderr: str, code: int) -> OutliveError:
    for missing in _MISSING:
        if missing in stderr:
            return ConfigError(
                f"{interpreter} has {missing.removeprefix('No module named ').strip(chr(39))} not installed,"
                " which this format needs",
                hint="name the Python of the training: --python /path/to/venv/bin/python"
                " (with pip install 'outlive[train]' in it)",
            )
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), f"it ended with {code}")
    return OutliveError(f"the conversion by {interpreter} failed: {last.strip()}")
