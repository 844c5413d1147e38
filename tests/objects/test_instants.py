"""Times in listings."""

from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from outlive.objects.s3 import instants
from outlive.objects.s3.instants import instant

SPELLINGS = [
    "2026-12-01T10:53:09.250Z",
    "2026-12-01T10:53:09Z",
    "2026-12-01T10:53:09.250123Z",
    "2026-12-01T10:53:09+02:00",
    "20261201T105309Z",
    "Tue, 01 Dec 2026 10:53:09 GMT",
    1796122389,
]


@pytest.mark.parametrize("value", SPELLINGS)
def test_every_spelling_is_the_time_that_botocore_reads(value: Any) -> None:
    """The quick way changes no time, and what it does not know is read as before."""
    assert instant(value) == parse_timestamp(value)


def test_what_s3_says_is_read_without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a thousand keys costs a few milliseconds, not fifty."""
    monkeypatch.delattr(instants, "parse_timestamp")
    assert instant("2026-12-01T10:53:09.250Z") == datetime(2026, 12, 1, 10, 53, 9, 250000, timezone.utc)


def test_rubbish_is_refused_and_not_guessed() -> None:
    """A time that is none is an error that the store names."""
    with pytest.raises(ValueError, match="month"):
        instant("2026-13-01T10:53:09Z")
