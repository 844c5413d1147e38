"""Times, Slurm's end, what is remembered on a machine, and the emulator's command line."""

import os
import re
import signal
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive_agent.notice import Kind, Notice
from outlive_agent.remembered import Remembered
from outlive_agent.sources.metadata_http import Answer
from outlive_agent.sources.slurm import LEAD_SECONDS, Slurm
from outlive_agent.sources.times import iso_time, mail_time, reversed_time, seconds_until


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2017-09-18T08:22:00Z", datetime(2017, 9, 18, 8, 22, tzinfo=timezone.utc)),
        ("2017-09-18T10:22:00+02:00", datetime(2017, 9, 18, 8, 22, tzinfo=timezone.utc)),
        ("2017-09-18 08:22:00.25", datetime(2017, 9, 18, 8, 22, tzinfo=timezone.utc)),
        ("2017-13-18T08:22:00Z", None),
        ("", None),
        ("soon", None),
    ],
)
def test_iso(text: str, moment: datetime | None) -> None:
    """ISO times with and without a zone; rubbish is no time."""
    assert iso_time(text) == moment


@pytest.mark.parametrize(
    "text", ["Mon, 11 Apr 2026 22:26:58 GMT", "11 Apr 2026 22:26:58 GMT", "Sat, 11 Apr 2026 22:26:58 UTC"]
)
def test_mail(text: str) -> None:
    """The day of the week may be wrong or missing."""
    assert mail_time(text) == datetime(2026, 4, 11, 22, 26, 58, tzinfo=timezone.utc)


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    """Whatever a server says is a time or None, never an exception."""
    for parsed in (iso_time(text), mail_time(text), reversed_time(text, zone=timezone.utc)):
        assert parsed is None or parsed.tzinfo is not None


def test_the_servers_clock_counts() -> None:
    """What is left is counted from the server's own date."""
    answer = Answer(status=200, body=b"", headers={"date": "Tue, 01 Jan 2019 00:00:00 GMT"})
    assert seconds_until(datetime(2019, 1, 1, 0, 2, tzinfo=timezone.utc), answer) == 120


def test_slurm() -> None:
    """The job's end is told an hour before, with the time that is left then."""
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "100000"}
    now = [100000 - 3 * LEAD_SECONDS]
    slurm = Slurm(environ, clock=lambda: 50.0, wall=lambda: now[0])
    assert slurm.wait() == LEAD_SECONDS
    now[0] = 100000 - LEAD_SECONDS
    told: list[object] = []
    slurm.run(told.append, threading.Event())
    (notice,) = told
    assert isinstance(notice, Notice)
    assert (notice.deadline, notice.id) == (50 + LEAD_SECONDS, "slurm:7@100000")


@pytest.mark.parametrize("text", ["", "soon", "-1", "1"])
def test_slurm_without_an_end(text: str) -> None:
    """No end, rubbish, or one that is past: nothing is told, and the source ends."""
    Slurm({"SLURM_JOB_END_TIME": text}, wall=lambda: 100.0).run(
        lambda said: pytest.fail(str(said)), threading.Event()
    )


def _notice(kind: Kind = "reclaim", *, deadline: float | None = 1000.0) -> Notice:
    return Notice(kind=kind, deadline=deadline, source="aws", id="aws:x", received_at=900.0)


def test_remembered_until_it_is_settled(tmp_path: Path) -> None:
    """A reclaim stands for the next agent until it was acted on, and is known to be done from then on."""
    path = tmp_path / "notices"
    Remembered(path, boot="b").add(_notice())
    again = Remembered(path, boot="b")
    assert again.standing(950) == [_notice()]
    assert not again.acted_on(_notice())
    again.settle()
    last = Remembered(path, boot="b")
    assert (last.standing(950), last.acted_on(_notice())) == ([], True)
    last.forget("aws:x")
    assert not Remembered(path, boot="b").acted_on(_notice())


def test_remembered_has_its_limits(tmp_path: Path) -> None:
    """A reboot, a deadline long past, an early save and a damaged file leave nothing to act on."""
    path = tmp_path / "notices"
    Remembered(path, boot="b").add(_notice())
    assert Remembered(path, boot="c").standing(950) == []
    assert Remembered(path, boot="b").standing(5000) == []
    Remembered(path, boot="b").add(_notice("hint"))
    assert Remembered(path, boot="b").standing(950) == []
    path.write_bytes(b'{"boot": "b", "notices": [7, {"id": "x"}, [')
    assert Remembered(path, boot="b").standing(950) == []
    path.write_bytes(b'{"boot": "b", "notices": [7, {"id": "x"}]}')
    assert Remembered(path, boot="b").standing(950) == []


def test_emulate_serves() -> None:
    """The command prints where it serves, and ends with Ctrl-C."""
    command = [
        sys.executable,
        "-m",
        "outlive_agent",
        "emulate",
        "aws",
        "--notice-in",
        "1h",
        "--fault",
        "503:2",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.parametrize("arguments", [["mars"], ["aws", "--fault", "on-fire"], ["aws", "--window", "soon"]])
def test_emulate_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be emulated is refused with what can."""
    from outlive_agent.__main__ import main

    with pytest.raises(SystemExit):
        main(["emulate", *arguments])
    assert "Try:" in capsys.readouterr().err
