"""The example of the documentation: what it shows is what it does."""

import difflib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
WAIT_SECONDS = 60.0


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def command(name: str, log: Path, epochs: int) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), "--epochs", str(epochs), "--log", str(log)]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A bare machine: no agent, a store of the test's own."""
    free = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    return {**free, "OUTLIVE_STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}


def start(words: list[str], environ: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, env=environ)


def wait_for_lines(log: Path, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not log.exists() or len(lines(log)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_six_lines() -> None:
    """An ordinary loop of about 60 lines becomes one that outlives its process by changing at most six."""
    before, after = lines(EXAMPLES / "plain.py"), lines(EXAMPLES / "with_outlive.py")
    changes = list(difflib.unified_diff(before, after, n=0))[2:]
    added = [line for line in changes if line.startswith("+")]
    removed = [line for line in changes if line.startswith("-")]
    assert 50 <= len(before) <= 60
    assert len(added) <= 6
    assert len(removed) <= len(added)


def test_plain_example_runs(tmp_path: Path, environ: dict[str, str]) -> None:
    """The loop without outlive is a loop that works."""
    log = tmp_path / "losses"
    subprocess.run(command("plain.py", log, 1), env=environ, check=True, capture_output=True)
    assert len(lines(log)) == 16


def test_the_example_outlives_its_process(tmp_path: Path, environ: dict[str, str]) -> None:
    """Stopped by SIGTERM and started again, it writes each loss that it writes uninterrupted, once."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    start(command("with_outlive.py", whole, 20), {**environ, "OUTLIVE_RUN": "whole"}).wait(WAIT_SECONDS)
    environ["OUTLIVE_RUN"] = "cut"
    first = start(command("with_outlive.py", cut, 20), environ)
    wait_for_lines(cut, 20)
    first.send_signal(signal.SIGTERM)
    assert first.wait(WAIT_SECONDS) == 75
    assert 20 <= len(lines(cut)) < len(lines(whole))
    assert start(command("with_outlive.py", cut, 20), environ).wait(WAIT_SECONDS) == 0
    assert lines(cut) == lines(whole)
