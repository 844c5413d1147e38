"""Finds the texts that go onto a machine, in a checkout as in an installed package."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from outlive.errors import OutliveError

_HERE = Path(__file__).resolve().parent
ROOTS = (_HERE, _HERE.parents[2])
"""A wheel carries ``systemd/`` and ``cloud-init/`` beside this file; in a checkout they are at the top."""
_NAME = re.compile(r"\{\{([a-z]+)\}\}")


def path_of(name: str) -> Path:
    """Where a text such as ``systemd/outlive-agent.service`` lies."""
    for root in ROOTS:
        path = root / name
        if path.is_file():
            return path
    raise OutliveError(
        f"{name} is missing from this installation", hint="pip install --force-reinstall outlive"
    )


def text_of(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8")


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each ``{{name}}``; one that has a line for itself by a block with its indentation."""
    lines = []
    for line in template.splitlines():
        alone = _NAME.fullmatch(line.strip())
        if alone:
            lines += textwrap.indent(values[alone[1]].rstrip("\n"), line[: line.index("{")]).split("\n")
        else:
            lines.append(_NAME.sub(lambda match: values[match[1]], line))
    return "\n".join(lines) + "\n"
