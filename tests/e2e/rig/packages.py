"""What a guest installs without a route to anywhere: pip in it works as pasted, from folders of the host."""

import hashlib
import importlib.metadata
import platform
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.rig import processes
from e2e.rig.cache import build_once, cache_folder
from e2e.rig.errors import RigError
from e2e.rig.image import PYTHON, Release, ensure_image

REPOSITORY = Path(__file__).resolve().parents[3]
TORCH = "/opt/torch"
"""Where a guest finds the virtual environment with torch."""

_SOURCES = ("agent", "trainer", "systemd", "cloud-init", "pyproject.toml", "README.md", "LICENSE")
_SOURCE_ONLY = ("sdnotify",)  # on PyPI as source only; made a wheel here, so that guests need no compiler
_PIP_CONF = """[global]
no-index = true
find-links =
    /opt/wheels/project
    /opt/wheels/dependencies
disable-pip-version-check = true
"""
_INSTALL_TORCH = """
set -eu
image=$1 folder=$2; shift 2
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=$image,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mkdir "$folder/root/opt/torch" "$folder/root/opt/wheels"
mount --bind "$folder/venv" "$folder/root/opt/torch"
mount --bind "$folder/wheels" "$folder/root/opt/wheels"
exec chroot "$folder/root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root sh -euc '
python3 -m venv /opt/torch
/opt/torch/bin/pip install --quiet --no-index --find-links=/opt/wheels "$@"' install "$@"
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
        "/opt/wheels/dependencies": _dependencies(project, release),
    }
    return Equipment(binds=binds, files={"/etc/pip.conf": _PIP_CONF})


def torch_environment(release: Release = "bookworm") -> Equipment:
    """A virtual environment at /opt/torch with the same torch as this process's, for the guest's Python."""
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in ("torch", "numpy")]
    image = ensure_image(release)

    def build(folder: Path) -> None:
        (folder / "venv").mkdir()
        _download(folder / "wheels", versions, release=release)
        script = ("bash", "-c", _INSTALL_TORCH, "install", str(image), str(folder), *versions)
        processes.build(script, timeout=600, log=folder / "log")
        for scrap in ("wheels", "upper", "work", "root"):
            shutil.rmtree(folder / scrap)

    key = _digest([image.name, *versions])
    return Equipment(binds={TORCH: build_once(cache_folder() / "torch" / f"{release}-{key}", build) / "venv"})


def project_wheel() -> Path:
    """This working tree as a wheel; built anew when a file of it changed."""
    digest = hashlib.blake2b(digest_size=8)
    for source in _SOURCES:
        place = REPOSITORY / source
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(REPOSITORY)}\0".encode())
                digest.update(path.read_bytes())
    wheels = cache_folder() / "wheels"

    def build(folder: Path) -> None:
        _pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(REPOSITORY))

    folder = build_once(wheels / f"project-{digest.hexdigest()}", build)
    return next(folder.glob("*.whl"))


def _dependencies(project: Path, release: Release) -> Path:
    with zipfile.ZipFile(project) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    required = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    needed = [requirement for requirement in required if "extra ==" not in requirement]

    def build(folder: Path) -> None:
        _download(folder, needed, release=release)

    return build_once(cache_folder() / "wheels" / f"{release}-{_digest(needed)}", build)


def _download(folder: Path, requirements: Sequence[str], *, release: Release) -> None:
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


def _digest(parts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()
