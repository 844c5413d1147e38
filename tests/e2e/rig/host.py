"""The host can boot guests after `ensure_host()`: what is missing is installed, or named in an error."""

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from e2e.rig.cache import locked
from e2e.rig.errors import RigError
from e2e.rig.processes import run

_PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "journalctl": "systemd",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600")


@functools.cache
def ensure_host() -> None:
    """Make sure once per process that this machine has what a guest needs. Never a reason to skip."""
    if os.geteuid() != 0:
        raise RigError(
            "the rig boots machines, which takes root", hint="run the tests as root, e.g. sudo -E make test"
        )
    if "overlay" not in Path("/proc/filesystems").read_text():
        run(["modprobe", "overlay"], check=False)
        if "overlay" not in Path("/proc/filesystems").read_text():
            raise RigError("the kernel has no overlay file system", hint="load the module 'overlay'")
    ensure_programs(_PROGRAMS)
    if not _KEYRING.exists():
        _install({"debian-archive-keyring"})


def ensure_programs(programs: Mapping[str, str]) -> None:
    """Install what is missing of these programs: name -> Debian's package."""

    def missing() -> set[str]:
        return {package for program, package in programs.items() if shutil.which(program) is None}

    _install(missing())
    if still := missing():
        raise RigError(f"installed, but still not found: {', '.join(sorted(still))}")


def _install(packages: set[str]) -> None:
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise RigError(
            f"missing on this machine: {', '.join(sorted(packages))}",
            hint="install them by hand; the rig can do it only where there is apt-get",
        )
    with locked(Path("/run/outlive-rig.apt.lock")):
        run([*_APT, "update"], timeout=600)
        environment = ("env", "DEBIAN_FRONTEND=noninteractive")
        run([*environment, *_APT, "install", "--no-install-recommends", *sorted(packages)], timeout=900)
