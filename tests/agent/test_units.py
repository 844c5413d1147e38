"""Human units, in both directions."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive_agent.units import (
    ago_text,
    bytes_text,
    duration_text,
    iso_text,
    parse_duration,
    parse_steps,
    time_text,
)

NOW = datetime(2026, 11, 30, 23, 42, 43, 123456, timezone.utc)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5400),
        ("3 min 12 s", 192),
        ("500ms", 0.5),
        ("2 days", 172800),
        ("1.5h", 5400),
        ("90 m", 5400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """A duration means what a person means by it."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "0s", "-3s", "30 s\n", "1:30", "3 parsecs", "٣s", "1e3s", "30s,", "s30"]
)
def test_a_duration_without_sense_is_refused(text: str) -> None:
    """What isn't plainly a positive duration with its unit is refused, and the message shows a good one."""
    with pytest.raises(ValueError, match="such as 30s"):
        parse_duration(text)


def test_an_absurd_duration_does_not_overflow() -> None:
    """A duration longer than any run is a century, not an error from a library."""
    assert parse_duration("999999999d 999999999d") == timedelta(days=36500)


@pytest.mark.parametrize(("text", "steps"), [("200 steps", 200), ("1 step", 1), ("10steps", 10)])
def test_steps_are_read(text: str, steps: int) -> None:
    """A number of steps is read with its word."""
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["200", "0 steps", "-1 steps", "1.5 steps", "steps"])
def test_a_number_of_steps_without_sense_is_refused(text: str) -> None:
    """Steps without the word, none of them, or parts of one are refused."""
    with pytest.raises(ValueError, match="200 steps"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0314, "31 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (192, "3 min 12 s"),
        (7200, "2 h"),
        (7260, "2 h 1 min"),
        (100000, "1 d 3 h"),
        (-5, "-5.0 s"),
    ],
)
def test_durations_are_written(seconds: float, text: str) -> None:
    """A duration shows its two largest units."""
    assert duration_text(seconds) == text


@settings(deadline=None)
@given(st.integers(min_value=10, max_value=10**7))
def test_a_written_duration_can_be_read_back(seconds: int) -> None:
    """What is printed can be typed, and means the same but for the units that were left out."""
    read = parse_duration(duration_text(seconds)).total_seconds()
    assert 0 <= seconds - read < (60 if seconds < 86400 else 3600)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (14_200_000, "14.2 MB"),
        (99_960_000, "100 MB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1.0 GB"),
        (5 * 10**15, "5.0 PB"),
        (10**19, "10000 PB"),
    ],
)
def test_bytes_are_written(count: int, text: str) -> None:
    """Bytes are shown with three digits or so, in powers of a thousand."""
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (0, "just now"),
        (5, "5 s ago"),
        (300, "5 min ago"),
        (7300, "2 h ago"),
        (200000, "2 d ago"),
        (-7300, "in 2 h"),
    ],
)
def test_relative_times(ago: int, text: str) -> None:
    """A relative time is one unit, before or after now."""
    assert ago_text(NOW - timedelta(seconds=ago), NOW) == text


def test_absolute_times_carry_their_zone() -> None:
    """An absolute time is the reader's own and names its zone; for programs it is ISO 8601 in UTC."""
    east = timezone(timedelta(hours=9), "JST")
    assert time_text(NOW, zone=east) == "2026-12-01 08:42 JST"
    assert time_text(NOW, zone=timezone.utc, seconds=True) == "2026-11-30 23:42:43 UTC"
    assert iso_text(NOW.astimezone(east)) == "2026-11-30T23:42:43.123Z"
