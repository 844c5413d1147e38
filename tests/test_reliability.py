"""docs/RELIABILITY.md is about tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "RELIABILITY.md"


def test_every_promise_names_tests_that_there_are() -> None:
    """A proof that was renamed or removed must not be claimed any longer."""
    page = PAGE.read_text(encoding="utf-8")
    promises = [
        line for line in page.split("## ")[0].splitlines() if line.startswith(("| **", "| ... ", "| Claim"))
    ]
    named = [re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", line) for line in promises]
    assert len(promises) >= 14
    assert all(named)
    missing = [
        f"{path}::{test}"
        for path, test in sorted({proof for proofs in named for proof in proofs})
        if not (ROOT / path).is_file() or f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_test_that_the_page_names_is_there() -> None:
    """The tables of faults and stores, too; a name without a file is one of tests/fault/test_storage.py."""
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", page))
    named |= {("tests/fault/test_storage.py", test) for test in re.findall(r"`(test_[a-z0-9_]+)`", page)}
    assert len(named) > 50
    assert [
        test
        for path, test in sorted(named)
        if f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def test_every_long_form_is_on_the_page() -> None:
    """With the very options with which ``make soak`` runs it."""
    commands = re.findall(
        r"tests/fault/([a-z_]+\.py[^$\n]*?) *[$\n]", (ROOT / "Makefile").read_text(encoding="utf-8")
    )
    page = PAGE.read_text(encoding="utf-8")
    assert len(commands) == 7
    assert [command for command in commands if f"| `{command}` |" not in page] == []
