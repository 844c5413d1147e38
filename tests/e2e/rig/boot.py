"""One boot of a guest, from power on to power off: systemd-nspawn on an overlay, in a sandbox of its own."""

import enum
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from e2e.rig.cgroups import Cgroup
from e2e.rig.cloud import Nic
from e2e.rig.errors import RigError, TimedOut
from e2e.rig.patience import PATIENCE
from e2e.rig.processes import SANDBOX, TETHER, spawn

POWER_OFF = signal.SIGRTMIN + 4  # to systemd as PID 1: start poweroff.target, like the power button
REBOOT = signal.SIGRTMIN + 5

# Joins the guest's cgroups before anything else runs; `0` is "whoever writes this". volatile: without it any
# power-off waits until all that anybody wrote to the host's disk is on it, which took 13 s. What it marks
# in `work` would refuse the next boot of the same disk, so that folder is emptied before.
_START = """
set -eu
lower=$1 folder=$2 cgroups=$3; shift 3
for cgroup in $cgroups; do echo 0 > "$cgroup/cgroup.procs"; done
layers="lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work"
mount -t overlay overlay -o "index=off,volatile,$layers" "$folder/root"
exec "$@"
"""

# register, keep-unit: no systemd on the host is needed. MKNOD: root in the guest must not be able to make
# itself a node of the host's disk. bpf: without it systemd can't enforce IPAddressDeny, and says nothing.
# console: a pseudo-terminal of nspawn's own, never a device of the host.
_NSPAWN = (
    "systemd-nspawn",
    "--quiet",
    "--register=no",
    "--keep-unit",
    f"--kill-signal={int(POWER_OFF)}",
    "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
    "--drop-capability=CAP_MKNOD,CAP_SYS_TTY_CONFIG",
    "--system-call-filter=bpf",
    "--resolv-conf=off",
    "--timezone=off",
    "--link-journal=no",
    "--console=read-only",
)
_REBOOTS = 133  # nspawn's exit code for "the guest asks to be started again"


class Ending(enum.Enum):
    """How a boot ended."""

    OFF = "powered off"
    REBOOT = "asked for a reboot"
    CUT = "power cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What stays the same from boot to boot."""

    name: str
    folder: Path
    """Holds upper (what the guest wrote), work and root (the overlay's own) and console.log."""
    lower: Path
    machine_id: str
    init: str | None = None
    """Started in place of systemd; must exec it."""
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Path in the guest -> folder of the host, read-only."""


class Boot:
    """A running guest."""

    def __init__(self, hardware: Hardware, nic: Nic) -> None:
        self.nic = nic
        self._cgroup = Cgroup(hardware.name)
        self._leader = -1
        self._handle = -1  # a descriptor for PID 1: signals can't hit a stranger that got its number
        self._cut = False
        try:
            self._cgroup.create()
            self._process = self._start(hardware)
        except BaseException:
            self._cgroup.remove()
            nic.close()
            raise

    def _start(self, hardware: Hardware) -> "subprocess.Popen[bytes]":
        shutil.rmtree(hardware.folder / "work")
        (hardware.folder / "work").mkdir()
        network = self.nic.namespace.descriptor
        cgroups = " ".join(str(folder) for folder in self._cgroup.folders)
        script = ("bash", "-c", _START, "start", str(hardware.lower), str(hardware.folder), cgroups)
        with (hardware.folder / "console.log").open("ab") as console:
            return spawn(
                [
                    *TETHER,
                    "nsenter",
                    f"--net=/proc/self/fd/{network}",
                    "--",
                    *SANDBOX,
                    *script,
                    *_nspawn(hardware),
                ],
                output=console.fileno(),
                pass_fds=[network],
            )

    @property
    def leader(self) -> int:
        """The host's number for the guest's PID 1."""
        if self._leader < 0:
            raise RigError("the guest's systemd isn't up yet")
        return self._leader

    @property
    def root(self) -> Path:
        """The guest's root as the guest sees it. Links in it lead to the *host's* root: use disk.read."""
        return Path(f"/proc/{self.leader}/root")

    def wait_up(self, within: float) -> None:
        """Wait until systemd is there and listens: from then on it understands signals."""
        deadline = time.monotonic() + within
        while not self._find_leader():
            if self._process.poll() is not None:
                raise RigError(f"the guest ended with {self._process.returncode} before systemd was up")
            if time.monotonic() > deadline:
                raise TimedOut(f"no systemd in the guest after {within:.0f} s")
            time.sleep(0.01)

    def _find_leader(self) -> bool:
        own_depth = len(_namespace_pids("self"))
        for pid in self._cgroup.processes():
            with suppress(FileNotFoundError, ProcessLookupError):
                inside = _namespace_pids(str(pid))
                # PID 1 of the namespace that nspawn made within the sandbox's.
                if len(inside) == own_depth + 2 and inside[-1] == 1:
                    if not Path(f"/proc/{pid}/root/run/systemd/private").exists():
                        return False
                    self._handle = os.pidfd_open(pid)
                    self._leader = pid
                    return True
        return False

    def signal(self, number: int) -> None:
        """Send a signal to the guest's PID 1."""
        self.leader  # noqa: B018  # raises where there is none
        with suppress(ProcessLookupError):  # it went by itself
            signal.pidfd_send_signal(self._handle, number)

    def cut(self) -> None:
        """Kill everything in the guest at one stroke; nobody gets to say anything."""
        self._cut = True
        self._process.kill()

    def dying(self) -> bool:
        """Whether PID 1 has ended, though nspawn may not have noticed yet: nothing there answers any more."""
        return self._handle >= 0 and bool(select.select([self._handle], [], [], 0)[0])

    def running(self) -> bool:
        """Whether the power is on."""
        return self._process.poll() is None

    def wait(self, within: float) -> Ending:
        """Wait for the end of this boot, and then until its disk is still."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"the guest is still on after {within:.0f} s") from None
        self._cgroup.wait_empty(10 * PATIENCE)
        if self._cut or code == -signal.SIGKILL:
            return Ending.CUT
        if code == _REBOOTS:
            return Ending.REBOOT
        if code != 0:
            raise RigError(f"systemd-nspawn ended with {code}", hint="the end of console.log says why")
        return Ending.OFF

    def close(self) -> None:
        """Power off the hard way if need be, and give back cgroup and network."""
        with ExitStack() as each:  # all of it, also when one fails
            each.callback(self.nic.close)
            if self._handle >= 0:
                each.callback(os.close, self._handle)
                self._handle = -1
            each.callback(self._cgroup.remove)
            self.cut()
            self._process.wait()


def _nspawn(hardware: Hardware) -> Sequence[str]:
    return (
        *("env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"),
        *_NSPAWN,
        f"--directory={hardware.folder / 'root'}",
        f"--machine={hardware.name}",
        f"--uuid={hardware.machine_id}",
        *(f"--bind-ro={there}:{here}" for here, there in hardware.binds.items()),
        *((hardware.init,) if hardware.init else ("--boot",)),
    )


def _namespace_pids(pid: str) -> list[int]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []
