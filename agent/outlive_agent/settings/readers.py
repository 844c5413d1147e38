"""Each reads one value; ``ValueError`` carries what is allowed. The JSON schema has the same patterns."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from outlive_agent.settings.values import PROVIDERS, Every
from outlive_agent.units import DURATION_PATTERN, STEPS_PATTERN, parse_duration, parse_steps

RUN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LOCATION_PATTERN = r"^(?:s3://[^/@?#\s]+(?:/[^@?#\s]*)?|https?://[^/@?#\s]+/[^@?#\s]+|(?:file://|~)?/.*)$"
ENDPOINT_PATTERN = r"^https?://[^/@?#\s]+/?$"
REGION_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
ENV_PATTERN = r"^(?!AKIA|ASIA|DO00|DO801)[A-Z_][A-Z0-9_]{0,99}$"
ABSOLUTE_PATTERN = r"^/.*$"
CREDENTIAL_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$"
USER_PATTERN = r"^[a-z_][a-z0-9_-]{0,31}$"
METRIC_PATTERN = r"^-?[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}$"
MOST = 1_000_000


def matching(pattern: str, allowed: str) -> Callable[[object], str]:
    """A reader of text that fits ``pattern``."""

    def read(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        quoted = "" if isinstance(value, str | list | dict | None) else "; put it into quotes"
        raise ValueError(allowed + quoted)

    return read


def server(allowed: str) -> Callable[[object], str]:
    """A reader of a server's address; a port that can't be is found here, not by the first request."""
    matches = matching(ENDPOINT_PATTERN, allowed)

    def read(value: object) -> str:
        text = matches(value)
        try:
            _ = urlsplit(text).port
        except ValueError:
            raise ValueError(allowed) from None
        return text

    return read


run_name = matching(RUN_PATTERN, "1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit")
location = matching(
    LOCATION_PATTERN, "s3://bucket/prefix, https://endpoint/bucket/prefix, or an absolute path"
)
endpoint = server("a URL without a path, such as https://nyc3.digitaloceanspaces.com")
metadata_endpoint = server("a URL without a path, such as http://127.0.0.1:1338")
region = matching(REGION_PATTERN, "a region's name, such as us-east-1")
systemd_name = matching(
    CREDENTIAL_PATTERN, "the name of a credential that the unit loads, such as outlive-store"
)
user = matching(USER_PATTERN, "the name of a user of this machine, such as train")
metric = matching(
    METRIC_PATTERN, "the name of a metric that run.step gets: loss for the lowest, -accuracy for the highest"
)
_absolute = matching(ABSOLUTE_PATTERN, "an absolute path")
_environment_name = matching(ENV_PATTERN, "names of environment variables")
_duration = matching(DURATION_PATTERN, "a duration with its unit, such as 30s, 5 min or 1h30m")
_steps = matching(STEPS_PATTERN, "a number of steps, such as 1000 steps")
requeue = matching("^never$", "never: what asks for the next machine is a command of yours, such as on_end")
_provider = matching(f"^(?:{'|'.join(PROVIDERS)})$", " or ".join(PROVIDERS))


def absolute_path(value: object) -> Path:
    return Path(_absolute(value))


def optional_path(value: object) -> Path | None:
    """An absolute path, or null for none."""
    if value is None:
        return None
    try:
        return absolute_path(value)
    except ValueError:
        raise ValueError("an absolute path, or null for none") from None


def environment_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) not in {2, 3}:
        raise ValueError("two or three names of environment variables: [KEY_ID, SECRET_KEY, SESSION_TOKEN]")
    return tuple(_environment_name(name) for name in value)


def duration(value: object) -> timedelta:
    return parse_duration(_duration(value))


def steps(value: object) -> int:
    return parse_steps(_steps(value))


def every(value: object) -> Every:
    """``auto``, a duration, or a number of steps."""
    if value == "auto":
        return Every()
    if isinstance(value, str) and re.fullmatch(STEPS_PATTERN, value):
        return Every(steps=parse_steps(value))
    try:
        return Every(duration=duration(value))
    except ValueError:
        raise ValueError(
            "auto, a duration with its unit such as 30s, or a number of steps such as 200 steps"
        ) from None


def provider(value: object) -> str:
    return _provider(value)


def count(least: int) -> Callable[[object], int]:
    """A reader of whole numbers from ``least`` to a million."""

    def read(value: object) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not least <= int(value) <= MOST:  # type: ignore[call-overload]
            raise ValueError(f"a whole number from {least} to {MOST}")
        return int(value)  # type: ignore[call-overload,no-any-return]

    return read


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - the reader's one way to say no
    return value


def command(value: object) -> tuple[str, ...]:
    """A list of the command and its arguments; numbers among them count as text."""
    whole = isinstance(value, list) and value and all(isinstance(v, str | int | float) for v in value)
    if not isinstance(value, list) or not whole or value[0] == "":
        example = "a list, such as [python, train.py, --epochs, 10]"
        raise ValueError(f"{example}; there is no shell" if isinstance(value, str) else example)
    return tuple(str(part).lower() if isinstance(part, bool) else str(part) for part in value)


def hook(value: object) -> tuple[str, ...] | None:
    """A line for the shell, or a list of a program and its arguments; null for none."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return ("/bin/sh", "-c", value)
    try:
        return command(value)
    except ValueError:
        raise ValueError("a line for the shell, or a list of a program and its arguments") from None
