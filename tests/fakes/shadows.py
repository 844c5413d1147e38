"""A folder as people have it: with files that are called like modules of Python's own, and of others."""

import sys
from pathlib import Path

OTHERS = (
    "blake3",
    "boto3",
    "botocore",
    "cryptography",
    "outlive",
    "outlive_agent",
    "requests",
    "rich",
    "yaml",
)


def cast_shadows(directory: Path) -> None:
    """From now on whoever looks for modules there first ends."""
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (directory / f"{name}.py").write_text(f"raise SystemExit('{name} is the one of the training')\n")
