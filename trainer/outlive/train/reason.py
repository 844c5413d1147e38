"""Why a training ended, in a line that may go into the history: the exception's type and its first words."""

import re

_LONGEST = 200
_FORWARDED = "Original Traceback (most recent call last):"
"""What a data worker failed of comes at the end of what its loader raises."""
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),  # user and password of an address
    (re.compile(r"\?[^\s'\"<>]*=[^\s'\"<>]*"), "?..."),  # signed requests carry their keys in there
)


def reason_of(error: BaseException) -> str:
    """``ValueError: a batch of 0 samples``; nothing in it that opens an address somebody else's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[-1 if _FORWARDED in lines[:2] else 0] if lines else ""
    for secret, instead in _SECRETS:
        first = secret.sub(instead, first)
    line = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
