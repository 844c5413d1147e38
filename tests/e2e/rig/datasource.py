"""Where the pasted user-data lies when the guest's cloud-init looks for it; and what a stock image needs."""

import json
from typing import Literal

from e2e.rig.disk import Layers
from fakes.metadata import Machine

Datasource = Literal["nocloud", "configdrive", "digitalocean"]

INIT = "/usr/local/sbin/outlive-rig-init"

_LISTED: dict[Datasource, str] = {
    "nocloud": "NoCloud",
    "configdrive": "ConfigDrive",
    "digitalocean": "DigitalOcean",
}

# Timers that would reach for a network that isn't there, or trim a disk that is the host's; and what touches
# kernel settings that a guest of this kind shares with the host. All of it is refused anyway: this is quiet.
_MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-pstore.service",
    "systemd-sysctl.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
)

# The datasource refuses containers, so the guest is told that it is a virtual machine of DigitalOcean's.
_INIT = "#!/bin/sh\nexec env -i PATH=/usr/sbin:/usr/bin TERM=linux /usr/lib/systemd/systemd\n"
_DETECT_VIRT = """#!/bin/sh
case "$*" in *container*) echo none; exit 1 ;; *) echo kvm ;; esac
"""
_DMIDECODE = """#!/bin/sh
case "$*" in
*system-manufacturer*) echo DigitalOcean ;;
*system-serial-number*) echo {identity} ;;
*system-product-name*) echo Droplet ;;
esac
"""


def settle(disk: Layers, *, machine_id: str) -> None:
    """Make a fresh disk a cloud image on first boot: cloud-init has run nowhere, and nothing is noisy."""
    disk.write("/etc/machine-id", f"{machine_id}\n".encode())
    disk.write("/etc/resolv.conf", b"")
    disk.write("/etc/hosts", b"127.0.0.1 localhost\n10.99.0.1 cloud.test\n")
    disk.write("/var/log/journal/.persistent", b"")
    for unit in _MASKED:
        disk.link(f"/etc/systemd/system/{unit}", "/dev/null")


def paste(disk: Layers, *, datasource: Datasource, machine: Machine) -> None:
    """Put the machine's user-data where `datasource` has it. DigitalOcean's comes over HTTP instead."""
    settings: dict[str, object] = {
        # One entry: cloud-init then takes it without asking the hardware.
        "datasource_list": [_LISTED[datasource]],
        "locale": "C.UTF-8",
        # No mirror to look for, none to write down.
        "apt": {"preserve_sources_list": True},
    }
    instance = f"outlive-rig-{machine.identity}"
    if datasource == "digitalocean":
        # The route to 169.254.169.254 is there from the start.
        settings["datasource"] = {"DigitalOcean": {"use_ip4LL": False, "retries": 3, "wait_retry": 1}}
        disk.write(INIT, _INIT.encode(), mode=0o755)
        disk.write("/usr/bin/systemd-detect-virt", _DETECT_VIRT.encode(), mode=0o755)
        disk.write("/usr/sbin/dmidecode", _DMIDECODE.format(identity=machine.identity).encode(), mode=0o755)
    elif datasource == "configdrive":
        settings["network"] = {"config": "disabled"}
        seed = "/var/lib/cloud/seed/config_drive/openstack/latest"
        about = {"uuid": instance, "hostname": machine.hostname, "availability_zone": machine.region}
        disk.write(f"{seed}/meta_data.json", json.dumps(about).encode())
        disk.write(f"{seed}/user_data", machine.user_data.encode())
    else:
        settings["network"] = {"config": "disabled"}
        seed = "/var/lib/cloud/seed/nocloud"
        about = {"instance-id": instance, "local-hostname": machine.hostname}
        disk.write(f"{seed}/meta-data", json.dumps(about).encode())
        disk.write(f"{seed}/user-data", machine.user_data.encode())
    # One key a line: a part of cloud-init reads the list with a pattern, not with a YAML parser.
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    disk.write("/etc/cloud/cloud.cfg.d/99-outlive-rig.cfg", lines.encode())
