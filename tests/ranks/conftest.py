"""Python with torch loaded, from which most of these trainings are forked."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.programs import Program
from ranks.starting import WARM, Place


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("warm")
    server = Program([sys.executable, str(WARM), "serve", str(folder / "socket")], log=folder / "log")
    try:
        server.wait_until((folder / "socket").exists, seconds=120)
        yield folder / "socket"
    finally:
        server.stop()


@pytest.fixture
def place(tmp_path: Path, warm: Path) -> Place:
    return Place(folder=tmp_path, warm=warm)
