"""The text of a file that a person named."""

from pathlib import Path
from typing import Final

from outlive.errors import ConfigError

AT_MOST: Final = 1024 * 1024
"""Somebody may have named the wrong file; it must not be read for minutes to find that out."""


def read_text(path: Path, *, otherwise: str, what: str) -> str:
    """All of it. ``ConfigError`` if it can't be ``what`` it should; ``otherwise``: where there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(AT_MOST + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file", hint=otherwise) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: {(error.strerror or str(error)).lower()}", hint="check the path and its owner"
        ) from None
    if len(raw) > AT_MOST:
        raise ConfigError(f"{path}: larger than 1 MiB, so this is no {what}", hint="check the path")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8", hint="save it as UTF-8") from None
