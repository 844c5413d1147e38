"""The guest's root file system: a Debian with systemd and cloud-init, built once per release."""

import hashlib
from pathlib import Path
from typing import Literal

from e2e.rig import processes
from e2e.rig.cache import build_once, cache_folder
from e2e.rig.host import ensure_host

Release = Literal["bookworm", "trixie"]
PYTHON: dict[Release, str] = {"bookworm": "3.11", "trixie": "3.13"}

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "libpam-systemd",
    "dbus",
    "udev",
    "kmod",
    "cloud-init",
    "python3",
    "python3-venv",
    "iproute2",
    "procps",
    "ca-certificates",
    "git",  # user-data clones the user's repository
    "curl",
    "libfaketime",  # a guest's clock can't be set, it is the host's: a unit can be lied to instead
)


def ensure_image(release: Release) -> Path:
    """The folder with the release's root file system. It is every guest's lower layer: never write to it."""
    ensure_host()
    recipe = hashlib.blake2b(" ".join(PACKAGES).encode(), digest_size=4).hexdigest()
    images = cache_folder() / "images"

    def build(folder: Path) -> None:
        arguments = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        log = images / f"{release}.log"
        processes.build([*arguments, release, str(folder)], timeout=900, log=log)

    return build_once(images / f"{release}-{recipe}", build)
