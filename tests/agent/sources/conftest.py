"""What a test watches ends with it."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from fakes.watched import Watched
from outlive_agent.notice import Notice


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    """Starts what a test watches, and ends it."""
    started: list[Watched] = []

    def start(provider: str, *, standing: Sequence[Notice] = ()) -> Watched:
        started.append(Watched(provider, standing=standing))
        return started[-1]

    yield start
    for watched in started:
        watched.close()
