"""What outlive starts of its own does not take the training's files for modules."""

import subprocess
from pathlib import Path

import pytest

from fakes.shadows import cast_shadows
from outlive.programs import program
from outlive.staging.messages import Ended
from outlive.train.sidecar import let_go, start_sidecar


def test_a_sidecar_starts_among_files_that_are_called_like_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``types.py`` or ``yaml.py`` beside the training is the training's alone."""
    work = tmp_path / "work"
    work.mkdir()
    cast_shadows(work)
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OUTLIVE_PROVIDER", "none")
    link = start_sidecar({"OUTLIVE_STORE": str(tmp_path / "store"), "OUTLIVE_RUN": "t"})
    assert link.open() is None
    assert link.welcome.life == 1
    link.end(Ended(outcome="finished", step=0, message=""))
    link.close()
    let_go(link.sidecar, seconds=30)


def test_a_verb_starts_there_too(tmp_path: Path) -> None:
    """The way in which one outlive starts another looks nowhere but where Python's own modules are."""
    cast_shadows(tmp_path)
    done = subprocess.run(
        [*program("outlive_agent.__main__"), "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith("outlive "), done.stderr
