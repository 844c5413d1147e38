"""The disk of a full virtual machine: a Debian with a kernel of its own, and torch in its Python."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from e2e.rig import image, processes
from e2e.rig.cache import build_once, cache_folder
from e2e.rig.environments import TORCH, torch_environment
from e2e.rig.host import ensure_programs
from e2e.rig.index import PIP_CONF

_PACKAGES = (*image.PACKAGES, "linux-image-cloud-amd64", "initramfs-tools", "ifupdown", "isc-dhcp-client")
_FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/hosts": "127.0.0.1 localhost\n10.99.0.1 cloud.test\n",
    "etc/machine-id": "",
    "etc/resolv.conf": "",
    "etc/pip.conf": PIP_CONF,
    # Nothing about a datasource: cloud-init is to find out by itself where it is.
    "etc/cloud/cloud.cfg.d/99-outlive-rig.cfg": "locale: C.UTF-8\napt: {preserve_sources_list: true}\n",
    "usr/lib/python3/dist-packages/torch.pth": f"{TORCH}/lib/python3.11/site-packages\n",
    "var/log/journal/.persistent": "",
}
_TIMERS = ("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim")
_SIZE = "5G"  # sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualImage:
    """What a virtual machine starts from. Never write to it."""

    disk: Path
    kernel: Path
    initrd: Path


def ensure_virtual_image() -> VirtualImage:
    """Built once, in about three minutes."""
    ensure_programs({"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs", "debugfs": "e2fsprogs"})
    torch = torch_environment().binds[TORCH]
    recipe = repr((_PACKAGES, _FILES, _TIMERS, _SIZE, str(torch)))
    key = hashlib.blake2b(recipe.encode(), digest_size=4).hexdigest()

    def build(folder: Path) -> None:
        _build(folder, torch)

    made = build_once(cache_folder() / "virtual" / f"bookworm-{key}", build)
    return VirtualImage(disk=made / "disk", kernel=made / "vmlinuz", initrd=made / "initrd.img")


def _build(folder: Path, torch: Path) -> None:
    root = folder / "root"
    arguments = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
    processes.build([*arguments, "bookworm", str(root)], timeout=1200, log=folder / "log")
    for name, text in _FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text)
    for timer in _TIMERS:
        (root / f"etc/systemd/system/{timer}.timer").symlink_to("/dev/null")
    shutil.copytree(torch, root / TORCH.lstrip("/"), symlinks=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
    make = ["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(folder / "disk"), _SIZE]
    processes.run(make, timeout=600)
    shutil.rmtree(root)
