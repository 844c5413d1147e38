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
