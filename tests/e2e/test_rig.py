"""The rig itself: what a scenario relies on when it pastes user-data and takes machines away."""

import time

import boto3
import pytest

from e2e.rig.boot import Ending
from e2e.rig.bucket import Bucket
from e2e.rig.cloud import Cloud
from e2e.rig.conditions import FileThere, JournalLine, UnitState
from e2e.rig.datasource import Datasource
from e2e.rig.environments import TORCH, project_environment, torch_environment
from e2e.rig.errors import TimedOut
from e2e.rig.image import Release
from e2e.rig.machines import Machines
from e2e.rig.packages import pip_packages

PASTED = """#cloud-config
write_files:
- path: /etc/systemd/system/mark.service
  content: |
    [Service]
    ExecStart=/bin/sh -c 'echo "the mark is up"; exec sleep infinity'
    ExecStop=/bin/sh -c 'echo "the mark was told"; echo told >> /var/lib/told'
    [Install]
    WantedBy=multi-user.target
runcmd:
- echo once >> /var/lib/ran
- systemctl daemon-reload
- systemctl enable --now mark.service
"""


@pytest.mark.parametrize(
    ("datasource", "release"),
    [
        ("nocloud", "bookworm"),
        ("configdrive", "bookworm"),
        ("digitalocean", "bookworm"),
        ("nocloud", "trixie"),
        ("configdrive", "trixie"),
        ("digitalocean", "trixie"),
    ],
)
def test_pasted_user_data_runs(machine: Machines, datasource: Datasource, release: Release) -> None:
    """User-data writes a file and starts a unit, whichever way it reaches whichever Debian."""
    droplet = machine(PASTED, datasource=datasource, release=release)
    verdict = droplet.wait_for_cloud_init()
    assert [] == verdict["errors"]
    assert datasource in str(verdict["datasource"]).lower()
    assert "once\n" == droplet.read("/var/lib/ran")
    assert "running" == droplet.wait_for(UnitState("mark.service"), within=5)["SubState"]
    assert f"VERSION_CODENAME={release}" in droplet.read("/etc/os-release")


def test_user_data_over_http_is_the_machines_own(cloud: Cloud, machine: Machines) -> None:
    """Two machines of one cloud ask the same address and get their own user-data, both alive at once."""
    one = machine("#!/bin/sh\necho one > /var/lib/who\n", datasource="digitalocean")
    two = machine("#!/bin/sh\necho two > /var/lib/who\n", datasource="digitalocean")
    for droplet in (one, two):
        droplet.wait_for_cloud_init()
    assert ("one\n", "two\n") == (one.read("/var/lib/who"), two.read("/var/lib/who"))
    assert {(one.address, "/metadata/v1.json"), (two.address, "/metadata/v1.json")} <= set(
        cloud.metadata.requests
    )


def test_one_disk_through_power_off_reboot_and_power_cut(machine: Machines) -> None:
    """Power off runs ExecStop and a power cut doesn't; files stay, per-instance work ran once."""
    droplet = machine(PASTED)
    droplet.wait_for_cloud_init()
    boots = [droplet.boot_id]
    droplet.power_off()
    assert not droplet.running
    assert "told\n" == droplet.read("/var/lib/told")

    droplet.boot()
    droplet.wait_for_cloud_init()
    boots.append(droplet.boot_id)
    droplet.reboot()
    droplet.wait_for_cloud_init()
    boots.append(droplet.boot_id)
    assert "told\ntold\n" == droplet.read("/var/lib/told")

    droplet.wait_for(JournalLine("the mark is up", unit="mark.service"), within=10)
    droplet.power_cut()
    assert "told\ntold\n" == droplet.read("/var/lib/told")
    assert "once\n" == droplet.read("/var/lib/ran")

    droplet.boot()
    boots.append(droplet.boot_id)
    droplet.wait_for(JournalLine("the mark is up", unit="mark.service"), within=10)
    assert boots == droplet.journal.boots()
    assert 4 == len(set(boots))


def test_journal_is_readable_live_and_after_death(machine: Machines) -> None:
    """The journal says the same while the machine runs and after it died, structured fields included."""
    droplet = machine("#cloud-config\n")
    said = "MESSAGE=step taken\nOUTLIVE_STEP=12\n"
    droplet.run("logger", "--journald", stdin=said)
    live = droplet.wait_for(JournalLine("step taken"), within=5)
    droplet.power_cut()
    after = droplet.journal.entries(boot=droplet.boot_id, matches=("OUTLIVE_STEP=12",))
    assert [live] == after
    assert "12" == live.fields["OUTLIVE_STEP"]


def test_new_disk_is_a_new_machine(machine: Machines) -> None:
    """A second droplet has nothing of the first one's disk, and another machine-id."""
    first = machine(PASTED)
    first.wait_for_cloud_init()
    ids = [first.read("/etc/machine-id")]
    first.power_cut()
    second = machine("#cloud-config\n")
    ids.append(second.read("/etc/machine-id"))
    assert not second.exists("/var/lib/ran")
    assert ids[0] != ids[1]


def test_machine_that_powers_itself_off_is_noticed(machine: Machines) -> None:
    """Waiting on a guest that went away fails at once, with its journal, instead of at the deadline."""
    droplet = machine("#cloud-config\nruncmd: [systemctl --no-block poweroff]\n")
    began = time.monotonic()
    with pytest.raises(TimedOut, match="is off"):
        droplet.wait_for(FileThere("/never"), within=300)
    assert time.monotonic() - began < 300
    assert Ending.OFF is droplet.wait_off()


def test_power_button_works_right_after_boot(machine: Machines) -> None:
    """boot() returns only when systemd understands signals, so an early power-off is not lost."""
    droplet = machine("#cloud-config\n")
    droplet.power_off(within=30)
    assert not droplet.running


def test_host_is_out_of_a_guests_reach(machine: Machines) -> None:
    """Neither a unit nor a command run by the test can set the clock, make a device or leave the network."""
    droplet = machine("#cloud-config\n")
    droplet.wait_for_cloud_init()
    unit = ("systemd-run", "--quiet", "--wait", "--collect")
    droplet.run(*unit, "true")
    forbidden = {
        # To what they are already: if a rig ever fails this, it must not do harm while it does.
        "date": ("sh", "-c", "date -s @$(date +%s.%N)"),
        "mknod": ("mknod", "/root/disk", "b", "254", "0"),
        "sysctl": ("sh", "-c", "now=$(cat /proc/sys/kernel/panic) && echo $now > /proc/sys/kernel/panic"),
        "route": ("curl", "--silent", "--max-time", "5", "http://192.0.2.1/"),
    }
    for name, command in forbidden.items():
        assert 0 != droplet.run(*command, check=False).returncode, name
        assert 0 != droplet.run(*unit, *command, check=False).returncode, name


def test_units_are_sandboxed_as_on_a_real_machine(machine: Machines) -> None:
    """What a unit's settings forbid is forbidden in the guest too: a scenario may rely on it."""
    droplet = machine("#cloud-config\n")
    droplet.wait_for_cloud_init()
    ask = ("curl", "--silent", "--fail", "--max-time", "2", "http://169.254.169.254/metadata/v1/id")
    probes = {
        "IPAddressDeny=169.254.169.254": ask,
        "RestrictAddressFamilies=AF_UNIX": ask,
        "ProtectSystem=strict": ("touch", "/var/lib/x"),
        "ProtectProc=invisible": ("cat", "/proc/1/cmdline"),
        "PrivateDevices=yes": ("test", "-e", "/dev/console"),
        "SystemCallFilter=~mkdir mkdirat": ("mkdir", "/run/x"),
        "MemoryDenyWriteExecute=yes": ("python3", "-c", "import mmap; mmap.mmap(-1, 4096, prot=7)"),
    }
    plain = ("systemd-run", "--quiet", "--wait", "--collect")
    for setting, command in probes.items():
        assert 0 == droplet.run(*plain, *command).returncode
        inside = ("--property=DynamicUser=yes", f"--property={setting}")
        assert 0 != droplet.run(*plain, *inside, *command, check=False).returncode, setting


def test_guests_links_do_not_lead_to_the_host(machine: Machines) -> None:
    """A link in the guest to /etc/hostname is followed to the guest's, on or off."""
    droplet = machine("#cloud-config\n")
    droplet.run("sh", "-c", "echo the guest > /root/own; ln -s /root/own /root/link")
    assert "the guest\n" == droplet.read("/root/link")
    droplet.run("rm", "/etc/debian_version")
    droplet.power_cut()
    assert "the guest\n" == droplet.read("/root/link")
    assert not droplet.exists("/etc/debian_version")
    droplet.write("/etc/systemd/system/late.conf", "put there while it was off\n")
    droplet.boot()
    assert "put there while it was off\n" == droplet.read("/etc/systemd/system/late.conf")
    assert "drwxr-xr-x root" == droplet.run("stat", "-c", "%A %U", "/etc/systemd").stdout.strip()


def test_bucket_comes_and_goes(bucket: Bucket, machine: Machines) -> None:
    """A guest reaches the S3 server; cut, it is refused; unplugged, packets vanish; and back each time."""
    droplet = machine("#cloud-config\n")
    client = boto3.client(
        "s3",
        endpoint_url=bucket.endpoint,
        region_name="us-east-1",
        aws_access_key_id=bucket.server.access_key,
        aws_secret_access_key=bucket.server.secret_key,
    )
    url = client.generate_presigned_url("put_object", Params={"Bucket": bucket.server.bucket, "Key": "key"})
    client.close()
    plain = ("--header", "Content-Type:", "--request", "PUT", "--data", "x")
    put = ("curl", "--silent", "--fail", "--max-time", "20", *plain, url)
    droplet.run(*put)
    client = bucket.server.client()
    assert b"x" == client.get_object(Bucket=bucket.server.bucket, Key="key")["Body"].read()
    client.close()
    bucket.cable.cut()
    assert 7 == droplet.run(*put, check=False).returncode  # refused
    bucket.cable.mend()
    droplet.run(*put)
    droplet.unplug()
    assert 28 == droplet.run(*put, "--max-time", "1", check=False).returncode  # timed out
    droplet.plug()
    droplet.run(*put)


def test_pip_installs_the_project_without_a_route(machine: Machines) -> None:
    """Pasted `pip install outlive` works in every Debian and brings this working tree."""
    pasted = "#!/bin/sh\nset -e\npython3 -m venv /opt/outlive\n/opt/outlive/bin/pip install outlive\n"
    releases: tuple[Release, ...] = ("bookworm", "trixie")
    equipment = {release: pip_packages(release) for release in releases}
    droplets = [machine(pasted, release=release, equipment=[equipment[release]]) for release in releases]
    for droplet in droplets:
        assert [] == droplet.wait_for_cloud_init(within=120)["errors"]
        droplet.run("/opt/outlive/bin/python", "-I", "-c", "import outlive, outlive_agent, boto3, blake3")


def test_environments_are_there_without_installing_them(machine: Machines) -> None:
    """Bound environments have torch and the project for the guest's Python; the guest can't write there."""
    equipment = [torch_environment(), project_environment("/opt/train", torch=True)]
    droplet = machine("#cloud-config\n", equipment=equipment)
    code = "import sys, torch, outlive; print(sys.prefix, torch.ones(2).sum().item())"
    assert "/opt/train 2.0" == droplet.run("/opt/train/bin/python", "-c", code).stdout.strip()
    assert droplet.run("head", "-1", "/opt/train/bin/outlive").stdout.startswith("#!/opt/train/bin/python")
    assert 0 != droplet.run("touch", f"{TORCH}/x", check=False).returncode
