"""A cloud of its own for each test, and as many machines in it as the test asks for."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import pytest

from e2e.rig.cloud import Cloud
from e2e.rig.datasource import Datasource
from e2e.rig.droplet import Droplet
from e2e.rig.image import Release
from e2e.rig.packages import Equipment


class Machines(Protocol):
    """Makes a machine with a new disk and boots it; the test's end takes it away."""

    def __call__(
        self,
        user_data: str,
        *,
        datasource: Datasource = "nocloud",
        release: Release = "bookworm",
        equipment: Sequence[Equipment] = (),
    ) -> Droplet: ...


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A network of its own, with a metadata server."""
    with Cloud() as made:
        yield made


@pytest.fixture
def machine(cloud: Cloud) -> Iterator[Machines]:
    """Boots machines from pasted user-data."""
    with ExitStack() as stack:

        def make(
            user_data: str,
            *,
            datasource: Datasource = "nocloud",
            release: Release = "bookworm",
            equipment: Sequence[Equipment] = (),
        ) -> Droplet:
            droplet = Droplet(cloud, user_data, datasource=datasource, release=release, equipment=equipment)
            stack.enter_context(droplet).boot()
            return droplet

        yield make
