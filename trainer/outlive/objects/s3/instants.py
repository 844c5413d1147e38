"""Times in a store's answers: a listing has a thousand a page, and botocore takes 40 µs to read one."""

import re
from datetime import datetime
from typing import Any, Final

from botocore.utils import parse_timestamp

_PLAIN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3})?Z")


def instant(value: Any) -> datetime:
    """The time that is meant; in the usual spelling at once, in any other as botocore reads it."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return datetime.fromisoformat(f"{value[:-1]}+00:00")
    return parse_timestamp(value)
