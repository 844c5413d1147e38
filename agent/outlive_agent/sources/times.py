"""Times as metadata servers write them, and how long it is until then by the server's own clock."""

import re
from datetime import datetime, timedelta, timezone

from outlive_agent.sources.metadata_http import Answer

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
_REVERSED = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_MAIL = re.compile(r"(?:[A-Za-z]{3,9}, )?(\d{1,2}) ([A-Za-z]{3}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|UTC)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def iso_time(text: str, *, zone: timezone = timezone.utc) -> datetime | None:
    """``2017-09-18T08:22:00Z``; ``zone`` is that of a time that names none. None if it is no time."""
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    offset = found[7]
    if offset and offset != "Z":
        sign = -1 if offset[0] == "-" else 1
        zone = timezone(sign * timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:])))
    elif offset:
        zone = timezone.utc
    return _moment(*(int(part) for part in found.groups()[:6]), zone=zone)


def reversed_time(text: str, *, zone: timezone) -> datetime | None:
    """``18/08/2018 12:05:33``: the day comes first."""
    found = _REVERSED.fullmatch(text.strip())
    if found is None:
        return None
    day, month, year, *clock = (int(part) for part in found.groups())
    return _moment(year, month, day, *clock, zone=zone)


def mail_time(text: str) -> datetime | None:
    """``Mon, 11 Apr 2026 22:26:58 GMT`` or ``21 Jan 2019 09:00:43 GMT``. The day of the week may be wrong."""
    found = _MAIL.fullmatch(text.strip())
    if found is None or found[2].lower() not in _MONTHS:
        return None
    month = _MONTHS.index(found[2].lower()) + 1
    clock = (int(part) for part in found.groups()[3:])
    return _moment(int(found[3]), month, int(found[1]), *clock, zone=timezone.utc)


def seconds_until(moment: datetime, answer: Answer) -> float:
    """How long from now, by the clock of the server that said so: this machine's may be an hour off."""
    now = mail_time(answer.headers.get("date", "")) or datetime.now(timezone.utc)
    return (moment - now).total_seconds()


def _moment(*parts: int, zone: timezone) -> datetime | None:
    try:
        year, month, day, hour, minute, second = parts
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
    except (ValueError, OverflowError):
        return None
