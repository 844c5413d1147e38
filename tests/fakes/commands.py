"""The command line, run in this process."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from outlive_agent.__main__ import main


@dataclass(frozen=True)
class Said:
    """What a command line answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs verbs in this process, as the console script would."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        try:
            code = main(arguments)
        except SystemExit as error:
            code = int(error.code or 0)
        captured = self._capsys.readouterr()
        return Said(code=code, out=captured.out, err=captured.err)
