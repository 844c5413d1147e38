"""Virtual environments made with a guest's own Python, once, and lent to guests read-only."""

import importlib.metadata
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.rig import processes
from e2e.rig.cache import build_once, cache_folder, forget_unused
from e2e.rig.image import PYTHON, Release, ensure_image
from e2e.rig.packages import Equipment, dependencies, digest, download, project_wheel

TORCH = "/opt/torch"
"""Where a guest finds the virtual environment with torch."""

# In the image itself, so that the environment's path and Python are the guest's, whatever the host has.
_INSTALL = """
set -eu
image=$1 folder=$2 path=$3; shift 3
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=$image,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mkdir -p "$folder/root$path" "$folder/root/opt/wheels"
mount --bind "$folder/venv" "$folder/root$path"
mount --bind "$folder/wheels" "$folder/root/opt/wheels"
exec chroot "$folder/root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root sh -euc '
path=$1; shift
python3 -m venv "$path"
exec "$path/bin/pip" install --quiet --no-index --find-links=/opt/wheels "$@"' install "$path" "$@"
"""


def torch_environment(release: Release = "bookworm") -> Equipment:
    """At /opt/torch, the same torch as this process's: a user's own training environment, in no time."""
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in ("torch", "numpy")]
    image = ensure_image(release)

    def build(folder: Path) -> None:
        download(folder / "wheels", versions, release=release)
        _install(folder, TORCH, image=image, requirements=versions)

    key = digest([image.name, *versions])
    return Equipment(binds={TORCH: build_once(cache_folder() / "torch" / f"{release}-{key}", build) / "venv"})


def project_environment(
    path: str, *, release: Release = "bookworm", torch: bool = False, files: Mapping[str, str] | None = None
) -> Equipment:
    """At `path`, this working tree installed: for machines whose environment "is there already".

    With `torch` it also sees torch_environment's, which the guest needs then too. `files`: path in the
    environment -> text, such as the mark by which an installer knows that it has been there.
    """
    added = dict(files or {})
    image = ensure_image(release)
    wheel = project_wheel()
    environments = cache_folder() / "environments"

    def build(folder: Path) -> None:
        shutil.copytree(dependencies(wheel, release), folder / "wheels")
        shutil.copy(wheel, folder / "wheels")
        _install(folder, path, image=image, requirements=["outlive"])
        if torch:
            packages = f"lib/python{PYTHON[release]}/site-packages"
            (folder / "venv" / packages / "torch.pth").write_text(f"{TORCH}/{packages}\n")
        for name, text in added.items():
            (folder / "venv" / name).write_text(text)
        forget_unused(environments)

    key = digest([image.name, path, wheel.parent.name, str(torch), str(sorted(added.items()))])
    return Equipment(binds={path: build_once(environments / f"{release}-{key}", build) / "venv"})


def _install(folder: Path, path: str, *, image: Path, requirements: Sequence[str]) -> None:
    (folder / "venv").mkdir()
    script = ("bash", "-c", _INSTALL, "install", str(image), str(folder), path, *requirements)
    processes.build(script, timeout=600, log=folder / "log")
    for scrap in ("wheels", "upper", "work", "root"):
        shutil.rmtree(folder / scrap)
