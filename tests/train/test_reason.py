"""What the history says of a training that failed."""

import pytest

from outlive.train.reason import reason_of

WORKER = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 1, in run
ValueError: a broken image: 7.png
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a batch of 0 samples\nand more"), "ValueError: a batch of 0 samples"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("\n \n"), "ValueError"),
        (ValueError(WORKER), "ValueError: ValueError: a broken image: 7.png"),
        (OSError("https://ann:pass@host/x?X-Amz-Signature=abc failed"), "OSError: https://host/x?... failed"),
        (ValueError("x" * 300), "ValueError: " + "x" * 185 + "..."),
    ],
)
def test_reason(error: BaseException, line: str) -> None:
    """One line: the type and the first words, without what opens somebody's address."""
    assert reason_of(error) == line
