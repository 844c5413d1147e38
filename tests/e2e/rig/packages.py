"""What a guest installs without a route to anywhere: pip in it works as pasted, from folders of the host."""

import hashlib
import platform
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.rig import processes
from e2e.rig.cache import build_once, cache_folder, forget_unused
from e2e.rig.errors import RigError
from e2e.rig.image import PYTHON, Release

REPOSITORY = Path(__file__).resolve().parents[3]

_SOURCES = ("agent", "trainer", "systemd", "cloud-init", "pyproject.toml", "README.md", "LICENSE")
_SOURCE_ONLY = ("sdnotify",)  # on PyPI as source only; made a wheel here, so that guests need no compiler
_PIP_CONF = """[global]
no-index = true
find-links =
    /opt/wheels/project
    /opt/wheels/dependencies
disable-pip-version-check = true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a guest has beyond its image."""

    binds: Mapping[str, Path] = field(default_factory=dict)
    """Path in the guest -> folder of the host, read-only."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the guest -> text, on its disk from the start."""


def pip_packages(release: Release) -> Equipment:
    """`pip install outlive` and everything it depends on work in the guest, from this working tree."""
    project = project_wheel()
    binds = {
        "/opt/wheels/project": project.parent,
        "/opt/wheels/dependencies": dependencies(project, release),
    }
    return Equipment(binds=binds, files={"/etc/pip.conf": _PIP_CONF})


def project_wheel() -> Path:
    """This working tree as a wheel; built anew when a file of it changed."""
    content = hashlib.blake2b(digest_size=8)
    for source in _SOURCES:
        place = REPOSITORY / source
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(REPOSITORY)}\0".encode())
                content.update(path.read_bytes())
    wheels = cache_folder() / "wheels"

    def build(folder: Path) -> None:
        _pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(REPOSITORY))
        forget_unused(wheels, "project-*")

    folder = build_once(wheels / f"project-{content.hexdigest()}", build)
    return next(folder.glob("*.whl"))


def dependencies(project: Path, release: Release) -> Path:
    """The folder with every wheel that the project's wheel needs, for the release's Python."""
    with zipfile.ZipFile(project) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    required = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    needed = [requirement for requirement in required if "extra ==" not in requirement]

    def build(folder: Path) -> None:
        download(folder, needed, release=release)

    return build_once(cache_folder() / "wheels" / f"{release}-{digest(needed)}", build)


def download(folder: Path, requirements: Sequence[str], *, release: Release) -> None:
    """Fetch wheels that fit the release's Python, whichever Python this is."""
    folder.mkdir(exist_ok=True)
    for name in _SOURCE_ONLY:
        if any(requirement.startswith(name) for requirement in requirements):
            _pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", name)
    machine = platform.machine()
    kinds = [f"--platform=manylinux{kind}_{machine}" for kind in ("2014", "_2_17", "_2_28", "_2_34")]
    target = [f"--python-version={PYTHON[release]}", "--implementation=cp", "--only-binary=:all:"]
    places = [f"--dest={folder}", f"--find-links={folder}"]
    _pip("download", "--quiet", *target, *kinds, *places, *requirements)


def _pip(*arguments: str) -> None:
    try:
        processes.run([sys.executable, "-m", "pip", *arguments], timeout=900)
    except RigError as error:
        hint = "the rig downloads with the pip of this Python, as it is set up: see its index and find-links"
        raise RigError(str(error), hint=hint) from None


def digest(parts: Sequence[str]) -> str:
    """A short name for what something was made from."""
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()
