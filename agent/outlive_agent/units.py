"""Durations, byte counts and times, as people write and read them, in both directions.

A duration is never a bare number, nor nothing: ``30`` and ``0s`` are refused, ``30s`` isn't.
"""

import re
from datetime import datetime, timedelta, timezone, tzinfo

DURATION_PATTERN = r"^(?=.*[1-9])(?:[0-9]{1,9}(?:\.[0-9]{1,3})? ?(?:ms|sec|s|min|m|h|days|day|d) ?)+$"
"""What :func:`parse_duration` reads; the JSON schema holds the same text."""
STEPS_PATTERN = r"^[1-9][0-9]{0,11} ?steps?$"
"""What :func:`parse_steps` reads; the JSON schema holds the same text."""

_SECONDS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86400,
    "day": 86400,
    "days": 86400,
}
_PIECE = re.compile(r"([0-9.]+) ?([a-z]+)")
_LONGEST = timedelta(days=36500)


def parse_duration(text: str) -> timedelta:
    """``30s``, ``1h30m``, ``3 min 12 s``, ``500ms``, ``2 days``. ``ValueError`` says what is allowed."""
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError("a duration with its unit, such as 30s, 5 min, 2h or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(text))
    return timedelta(seconds=min(seconds, _LONGEST.total_seconds()))


def parse_steps(text: str) -> int:
    """``200 steps``. ``ValueError`` says what is allowed."""
    if not re.fullmatch(STEPS_PATTERN, text):
        raise ValueError("a number of steps, such as 200 steps")
    return int(text.split("s")[0])


def duration_text(duration: timedelta | float) -> str:
    """``3 min 12 s``: the two largest units that matter."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 0:
        return "-" + duration_text(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def bytes_text(count: int) -> str:
    """``14.2 MB``, in powers of a thousand as storage is sold."""
    if count < 1000:
        return f"{count} B"
    units = iter(("kB", "MB", "GB", "TB", "PB"))
    size, unit = count / 1000, next(units)
    while size >= 999.5 and unit != "PB":
        size, unit = size / 1000, next(units)
    return f"{size:.1f} {unit}" if size < 99.95 else f"{size:.0f} {unit}"


def ago_text(moment: datetime, now: datetime) -> str:
    """``5 min ago``, ``in 2 h``, ``just now``: one unit, since the absolute time stands beside it."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < 1:
        return "just now"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if distance >= size:
            text = f"{int(distance // size)} {unit}"
            break
    return f"{text} ago" if seconds > 0 else f"in {text}"


def time_text(moment: datetime, *, zone: tzinfo | None = None, seconds: bool = False) -> str:
    """``2026-11-30 23:42 UTC``, in the reader's own zone unless another is given."""
    return format(moment.astimezone(zone), "%Y-%m-%d %H:%M:%S %Z" if seconds else "%Y-%m-%d %H:%M %Z")


def iso_text(moment: datetime) -> str:
    """``2026-11-30T23:42:43.123Z``, as FORMAT writes it."""
    utc = moment.astimezone(timezone.utc)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
