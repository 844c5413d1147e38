"""Rubbish from a coverage-guided fuzzer does no harm. The long form is `python tests/fault/fuzz.py`."""

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def _fuzz(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(FUZZ), "--seed", "1", *arguments], capture_output=True, text=True, check=False
    )


def test_what_a_stranger_wrote_does_no_harm() -> None:
    """Manifests, tables, shards, model files, claims, requests, events, keys, packets, sealed objects,
    settings, metadata servers' answers: each reader returns or refuses, and runs and writes nothing."""
    done = _fuzz("--runs", "2000")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("nothing found") == 14
    assert done.stdout.endswith("0 finds\n")


def test_a_hole_is_found() -> None:
    """A reader that breaks on one input in 16 million is found out, since each right byte is new code."""
    done = _fuzz("--runs", "200000", "planted")
    assert done.returncode == 1
    assert "a hole" in done.stdout
