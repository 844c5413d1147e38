"""Rehearsals of tiny trainings, whose Python has torch loaded already."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes import warm
from outlive.programs import program

AT_A_TIME = 4
"""They wait for one another's turns more than they compute."""
DISEASES = Path(__file__).with_name("diseases.py")


@dataclass(frozen=True, slots=True)
class Rehearse:
    """Runs the real verb on a disease."""

    directory: Path
    socket: Path

    def command(self, disease: str) -> "list[str]":
        python = [sys.executable, "-S", warm.__file__, "run", str(self.socket)]
        return [*python, str(DISEASES), disease]

    def start(
        self, *options: str, command: "list[str]", environ: "dict[str, str] | None" = None
    ) -> "subprocess.Popen[str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        here = {
            "HOME": str(self.directory),
            "XDG_RUNTIME_DIR": str(self.directory),
            "TMPDIR": str(self.directory),
        }
        (self.directory / "types.py").write_text("raise SystemExit('types is a file of the training')\n")
        return subprocess.Popen(
            [*program("outlive_agent.__main__"), "rehearse", *options, "--", *command],
            env={**clean, **here, **(environ or {})},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *options: str, command: "list[str]", environ: "dict[str, str] | None" = None
    ) -> "subprocess.CompletedProcess[str]":
        with self.start(*options, command=command, environ=environ) as running:
            out, err = running.communicate()
        return subprocess.CompletedProcess(running.args, running.returncode, out, err)

    def json(self, disease: str, *options: str) -> "dict[str, Any]":
        """What came out, for programs."""
        options = options if "--provider" in options else ("--provider", "none", *options)
        done = self.run("--json", *options, command=self.command(disease))
        assert done.stdout, done.stderr
        outcome: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if outcome["equal"] else 1)
        return outcome


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a Python that has torch loaded."""
    path = tmp_path_factory.mktemp("warm") / "s"
    server = subprocess.Popen([sys.executable, warm.__file__, "serve", str(path)])
    try:
        while not path.exists():  # on a busy machine that takes as long as it takes
            assert server.poll() is None, "Python with torch could not be started"
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        yield path
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def outcome_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_python: Path
) -> "Iterator[Callable[[str], dict[str, Any]]]":
    """What comes out for each disease that a selected test asks for; several are rehearsed at a time."""
    callspecs = [getattr(item, "callspec", None) for item in request.session.items]
    diseases = {spec.params["disease"] for spec in callspecs if spec is not None and "disease" in spec.params}
    with ThreadPoolExecutor(AT_A_TIME) as pool:

        def start(disease: str) -> "Future[dict[str, Any]]":
            rehearse = Rehearse(tmp_path_factory.mktemp("rehearsal"), warm_python)
            steps = "40" if disease == "longer" else "12"
            return pool.submit(rehearse.json, disease, "--steps", steps, "--seed", "3")

        outcomes = {disease: start(disease) for disease in sorted(diseases)}
        yield lambda disease: outcomes[disease].result()


@pytest.fixture
def bare(tmp_path: Path) -> Rehearse:
    """For what needs no training."""
    return Rehearse(tmp_path, tmp_path / "none")


@pytest.fixture
def rehearse(tmp_path: Path, warm_python: Path) -> Rehearse:
    return Rehearse(tmp_path, warm_python)
