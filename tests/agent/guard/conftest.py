"""One machine for each test, cleaned up after it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.agents import Machine
from fakes.systemd import Systemd


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A store and a runtime directory; its path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory(prefix="ol-") as directory:
        machine = Machine(Path(directory))
        try:
            yield machine
        finally:
            machine.clean_up()


@pytest.fixture
def systemd(machine: Machine) -> Iterator[Systemd]:
    """Listens at notify.sock in the machine's directory."""
    systemd = Systemd(str(machine.directory / "notify.sock"))
    yield systemd
    systemd.close()
