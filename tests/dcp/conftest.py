"""What the tests of torch.distributed.checkpoint share."""

from collections.abc import Iterator

import pytest

from outlive.dcp import session


@pytest.fixture(autouse=True)
def another_process() -> Iterator[None]:
    """Every test is a process of its own, as far as lives are concerned."""
    session._sessions.clear()
    yield
    session._sessions.clear()
