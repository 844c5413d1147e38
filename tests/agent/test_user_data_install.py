"""Installing the training on a machine: the code appears whole or not at all, and patience has an end."""

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from outlive.errors import OutliveError
from outlive_agent.bootstrap import training
from outlive_agent.bootstrap.archive import archive_key, upload_archive
from outlive_agent.bootstrap.plan import Archive, Environment, Git, Plan
from outlive_agent.bootstrap.steps import Account, StepFailed, persistently, run
from outlive_agent.bootstrap.training import Installer
from outlive_agent.bootstrap.wall import name_server_among
from outlive_agent.config import load
from outlive_agent.journal import Journal

_MODES: dict[str, Literal["w", "w:gz", "w:xz"]] = {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_BOOTSTRAP_TRIES", "1")


@pytest.fixture
def output() -> io.StringIO:
    """What the journal is told."""
    return io.StringIO()


def installer(place: Path, plan: Plan, output: io.StringIO) -> Installer:
    home = place / "home"
    for path in (home / "tmp", place / "state"):
        path.mkdir(parents=True, exist_ok=True)
    return Installer(
        plan=plan,
        account=Account(name="me", uid=os.getuid(), gid=os.getgid(), home=home),
        scratch=place / "state",
        venv=place / "venv",
        config=place / "outlive.yaml",
        journal=Journal(output),
    )


def plan(
    source: Git | Archive | None, *, subdirectory: str = ".", environment: Environment | None = None
) -> Plan:
    return Plan(
        package="outlive", source=source, subdirectory=subdirectory, environment=environment or Environment()
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the first has the tag v1."""
    place = tmp_path / "repository"
    place.mkdir()
    _git(place, "init", "--quiet", "--initial-branch=main")
    for number in ("1", "2"):
        (place / "train.py").write_text(number)
        _git(place, "add", "train.py")
        _git(place, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", number)
        if number == "1":
            _git(place, "tag", "v1")
    return place


def _git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("ref", "expected"), [("HEAD", "2"), ("main", "2"), ("v1", "1"), ("commit", "1")])
def test_code_is_that_of_the_ref(
    tmp_path: Path, repository: Path, output: io.StringIO, ref: str, expected: str
) -> None:
    """A branch, a tag, a commit or the default: the code is that, and is replaced when it is fetched anew."""
    _git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    named = _git(repository, "rev-parse", "v1") if ref == "commit" else ref
    install = installer(tmp_path, plan(Git(url=f"file://{repository}", ref=named)), output)
    install.source.mkdir()
    (install.source / "left-over").touch()
    install.fetch_source()
    assert expected == (install.source / "train.py").read_text()
    assert not (install.source / "left-over").exists()


def test_clone_that_fails_says_gits_own_words(tmp_path: Path, repository: Path, output: io.StringIO) -> None:
    """A branch that isn't there: git's complaint is in the one message, and no half code is left."""
    install = installer(tmp_path, plan(Git(url=f"file://{repository}", ref="nowhere")), output)
    with pytest.raises(StepFailed, match=r"git: fatal: couldn't find remote ref nowhere"):
        install.fetch_source()
    assert not install.source.exists()


def test_missing_subdirectory_is_named(tmp_path: Path, repository: Path, output: io.StringIO) -> None:
    """Code without the subdirectory of the job file is refused before anything is installed."""
    install = installer(tmp_path, plan(Git(url=f"file://{repository}"), subdirectory="gone"), output)
    with pytest.raises(StepFailed, match="there is no gone in the code"):
        install.fetch_source()


def test_token_goes_to_its_host_only() -> None:
    """The token is told to git by its environment, for the repository's host alone."""
    variables = training._git_variables(Git(url="https://git.example/a/b.git", token="ghp_secret"))  # noqa: S106
    assert "http.https://git.example/.extraHeader" == variables["GIT_CONFIG_KEY_0"]
    assert variables["GIT_CONFIG_VALUE_0"].startswith("Authorization: Basic ")
    assert "GIT_CONFIG_COUNT" not in training._git_variables(Git(url="https://git.example/a/b.git"))


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz", "zip"])
@pytest.mark.parametrize("top", ["", "training-1.0/"])
def test_archive_is_unpacked(
    tmp_path: Path, output: io.StringIO, monkeypatch: pytest.MonkeyPatch, kind: str, top: str
) -> None:
    """Every kind of archive becomes the code, without the one directory that many have at the top."""
    names = (f"{top}train.py", f"{top}more/data.py")
    raw = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(raw, "w") as packed:
            for name in names:
                packed.writestr(name, "code")
    else:
        with tarfile.open(fileobj=raw, mode=_MODES[kind]) as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 4
                archive.addfile(member, io.BytesIO(b"code"))
    install = installer(tmp_path, plan(Archive(key="gpt/artifacts/code/x")), output)
    monkeypatch.setattr(Installer, "_object", lambda self, key: raw.getvalue())
    install.fetch_source()
    assert ["more", "train.py"] == sorted(path.name for path in install.source.iterdir())
    assert ["source", "tmp"] == sorted(path.name for path in install.home.iterdir())


def test_archive_that_somebody_replaced_is_refused(tmp_path: Path, output: io.StringIO) -> None:
    """Whoever may write to the bucket can't make a machine run other code than its user data says."""
    config = tmp_path / "outlive.yaml"
    config.write_text(f"run: gpt\nstore: {{location: {tmp_path}/store}}\ntraining: {{command: [x]}}\n")
    code = tmp_path / "code.tar"
    with tarfile.open(code, "w") as archive:
        archive.addfile(tarfile.TarInfo("train.py"))
    key = archive_key("gpt", code)
    upload_archive(load(config).store, None, code, key=key)
    install = installer(tmp_path, plan(Archive(key=key)), output)
    assert install._object(key) == code.read_bytes()
    place = tmp_path / "store" / key
    place.chmod(0o600)
    place.write_bytes(code.read_bytes() + b"evil")
    with pytest.raises(StepFailed, match="is not the archive that was uploaded"):
        install.fetch_source()
    assert not install.source.exists()


def test_packages_are_installed_with_outlive(tmp_path: Path, output: io.StringIO) -> None:
    """The listed packages and outlive get into a new environment; where torch comes along, it isn't added."""
    extra = "Provides-Extra: train\nRequires-Dist: is-not-to-be-asked-for; extra == 'train'\n"
    wheels = {name: _wheel(tmp_path, name) for name in ("torch", "listed")}
    wheels["outlive"] = _wheel(tmp_path, "outlive", more=extra)
    environment = Environment(requirements=(str(wheels["listed"]), str(wheels["torch"])))
    made = Plan(package=str(wheels["outlive"]), source=None, environment=environment)
    install = installer(tmp_path, made, output)
    install.make_environment()
    run([install.venv / "bin" / "python", "-I", "-c", "import outlive, torch, listed"])


def test_environment_of_the_image_must_be_complete(tmp_path: Path, output: io.StringIO) -> None:
    """An environment without outlive or torch is refused, before the training fails in it."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    install = installer(tmp_path, plan(None, environment=Environment(venv=str(tmp_path / "venv"))), output)
    with pytest.raises(StepFailed, match="does not have outlive and torch") as caught:
        install.make_environment()
    assert "outlive[train]" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "brings"),
    [
        ("torch==2.9", True),
        ("numpy\n  torch >=2", True),
        ("torch", True),
        ("https://x/whl/torch-2.9.0-cp311.whl", True),
        ("torchvision\ntorch-geometric\ntorch_x", False),
        ("# torch", False),
    ],
)
def test_requirements_that_bring_torch(text: str, brings: bool) -> None:
    """torch itself counts, not what is only called after it."""
    assert brings is bool(training._TORCH.search(text))


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch, output: io.StringIO) -> None:
    """A step is tried a bounded number of times, with a line for each; the last error is the one raised."""
    monkeypatch.setenv("OUTLIVE_BOOTSTRAP_TRIES", "3")
    waits: list[float] = []
    monkeypatch.setattr("outlive_agent.bootstrap.steps.time.sleep", waits.append)
    tries = iter(("first", "second", "third"))

    def step() -> None:
        raise StepFailed(next(tries))

    with pytest.raises(OutliveError, match="third"):
        persistently(step, Journal(output), what="cloning")
    assert [5, 10] == waits
    assert [
        "outlive: cloning failed: first; again in 5 s",
        "outlive: cloning failed: second; again in 10 s",
    ] == (output.getvalue().splitlines())


def test_last_words_are_the_complaint(capfd: pytest.CaptureFixture[str]) -> None:
    """Of a program that fails, the line that complains is told, and all of its output is passed on."""
    with pytest.raises(StepFailed, match=r"sh: ERROR: no such thing$"):
        run(["sh", "-c", "echo ERROR: no such thing; echo notice: try another; exit 3"])
    assert "notice: try another" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("nameserver 169.254.169.254\n", True), ("search x\nnameserver 127.0.0.53\n", False), ("", False)],
)
def test_name_server_is_spared(text: str, expected: bool) -> None:
    """It is found out where denying the metadata server's address would take names away."""
    assert expected is name_server_among(text)


def _wheel(folder: Path, name: str, *, more: str = "") -> Path:
    """A package that holds nothing but its name."""
    file = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{more}")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return file
