"""A machine of the cloud's: paste user-data, switch it on, take its power away, look at what it wrote."""

import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from e2e.rig import boot, disk
from e2e.rig.boot import Boot, Ending, Hardware
from e2e.rig.cloud import Cloud, address, mac
from e2e.rig.conditions import CloudInitDone, Condition
from e2e.rig.datasource import INIT, Datasource, paste, settle
from e2e.rig.errors import RigError, TimedOut
from e2e.rig.image import Release, ensure_image
from e2e.rig.inside import run_inside
from e2e.rig.journal import Journal
from e2e.rig.owner import owner
from e2e.rig.packages import Equipment
from e2e.rig.patience import PATIENCE
from fakes.metadata import Machine

T = TypeVar("T")


class Droplet:
    """One machine with its own disk. A new Droplet is a new disk; boot() again is the same disk again."""

    def __init__(
        self,
        cloud: Cloud,
        user_data: str,
        *,
        datasource: Datasource = "nocloud",
        release: Release = "bookworm",
        equipment: Sequence[Equipment] = (),
    ) -> None:
        lower = ensure_image(release).resolve()
        self.name = owner().next_name()
        self.number = cloud.reserve()
        self.address = address(self.number)
        self._cloud = cloud
        self._boot: Boot | None = None
        self._boot_id = ""
        folder = owner().folder / self.name
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True)
        self._layers = disk.Layers(folder / "upper", lower)
        self._hardware = Hardware(
            name=self.name,
            folder=folder,
            lower=lower,
            machine_id=secrets.token_hex(16),
            init=INIT if datasource == "digitalocean" else None,
            binds={there: here for item in equipment for there, here in item.binds.items()},
        )
        self.journal = Journal(folder / "upper/var/log/journal")
        settle(self._layers, machine_id=self._hardware.machine_id)
        for item in equipment:
            for path, text in item.files.items():
                self._layers.write(path, text.encode())
        machine = Machine(
            identity=int.from_bytes(secrets.token_bytes(4), "big"),
            hostname=f"droplet-{self.number}",
            user_data=user_data,
            address=self.address,
            mac=mac(self.number),
        )
        paste(self._layers, datasource=datasource, machine=machine)
        cloud.metadata.know(self.address, machine)

    @property
    def running(self) -> bool:
        """Whether the power is on."""
        return self._boot is not None and self._boot.running()

    @property
    def boot_id(self) -> str:
        """The kernel's id for this boot, or for the last one when it is off: the journal's `_BOOT_ID`."""
        if self._boot is not None and self._boot.running():
            raw = disk.read(self._boot.root, "/proc/sys/kernel/random/boot_id").decode()
            self._boot_id = raw.strip().replace("-", "")
        return self._boot_id

    def boot(self, *, within: float = 30) -> None:
        """Switch on, and wait until systemd listens. The user-data is at work after that."""
        if self._boot is not None:
            raise RigError(f"{self.name} is on already")
        self._boot = Boot(self._hardware, self._cloud.connect(self.number))
        try:
            self._boot.wait_up(within * PATIENCE)
            self.boot_id  # noqa: B018  # remembered for when it is off
        except RigError as error:
            self._release()
            raise RigError(f"{self.name}: {error}\nconsole:\n{self.console()}") from error

    def wait_for(self, condition: Condition[T], *, within: float) -> T:
        """Wait until `condition` gives something, and give that. Ends at once when the guest went off."""
        deadline = time.monotonic() + within * PATIENCE
        while True:
            running = self.running
            try:
                found = condition(self)
            except (OSError, RigError):
                if self._boot is not None and self.running and not self._boot.dying():
                    raise
                time.sleep(0.01)
                continue  # it went off while it was looked at: look at what it left
            if found is not None:
                return found
            if not running:
                raise TimedOut(f"{self.name} is off, and yet not: {condition}\n{self.journal.tail()}")
            if time.monotonic() > deadline:
                raise TimedOut(f"not after {within * PATIENCE:.0f} s: {condition}\n{self.journal.tail()}")
            time.sleep(0.15)  # looking costs the guest processor time

    def wait_for_cloud_init(self, *, within: float = 60) -> Mapping[str, object]:
        """Wait until cloud-init is done with the user-data; gives its verdict (`datasource`, `errors`)."""
        return self.wait_for(CloudInitDone(), within=within)

    def power_off(self, *, within: float = 60) -> None:
        """Press the power button: units stop in order, ExecStop runs."""
        self._on().signal(boot.POWER_OFF)
        self.wait_off(within=within)

    def reboot(self, *, within: float = 60) -> None:
        """Ask for a reboot, and boot the same disk again when it went down."""
        self._on().signal(boot.REBOOT)
        ending = self.wait_off(within=within)
        if ending is not Ending.REBOOT:
            raise RigError(f"{self.name} {ending.value} when asked to reboot")
        self.boot()

    def power_cut(self) -> None:
        """Pull the plug: nothing runs any more, nobody was told. (The host's page cache survives, so what was
        written but not yet synced is not lost, as it might be on a real machine.)"""
        self._on().cut()
        self.wait_off(within=10)

    def press_power_button(self) -> None:
        """Start a power-off and don't wait for it."""
        self._on().signal(boot.POWER_OFF)

    def wait_off(self, *, within: float = 60) -> Ending:
        """Wait until it went off by itself or by the button, and tell how."""
        try:
            ending = self._on().wait(within * PATIENCE)
        except TimedOut as error:
            raise TimedOut(f"{self.name}: {error}\n{self.journal.tail()}") from None
        self._release()
        return ending

    def unplug(self) -> None:
        """Take the network away: packets vanish."""
        self._on().nic.unplug()

    def plug(self) -> None:
        """Give the network back."""
        self._on().nic.plug()

    def run(
        self, *arguments: str, timeout: float = 60, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside as the guest's root."""
        return run_inside(self._on().leader, arguments, timeout=timeout * PATIENCE, check=check, stdin=stdin)

    def unit(self, name: str) -> dict[str, str]:
        """What `systemctl show` says about a unit."""
        shown = self.run("systemctl", "show", name).stdout
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    def exists(self, path: str) -> bool:
        """Whether the file is there, on or off. /run is there only while it is on."""
        return (
            disk.exists(self._boot.root, path) if self._boot and self.running else self._layers.exists(path)
        )

    def read(self, path: str) -> str:
        """A file's text, on or off."""
        if self._boot and self.running:
            return disk.read(self._boot.root, path).decode()
        return self._layers.read(path).decode()

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Put a file on the disk of a machine that is off."""
        if self._boot is not None:
            raise RigError(f"{self.name} is on", hint="use run('tee', path, stdin=text)")
        self._layers.write(path, text.encode(), mode=mode)

    def console(self, lines: int = 20) -> str:
        """The end of what came out of the console, all boots."""
        log = self._hardware.folder / "console.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def close(self) -> None:
        """Take the machine away, disk and all."""
        self._release()
        if self._hardware.folder.exists():
            shutil.rmtree(self._hardware.folder)

    def _on(self) -> Boot:
        if self._boot is None:
            raise RigError(f"{self.name} is off")
        return self._boot

    def _release(self) -> None:
        ended, self._boot = self._boot, None
        if ended is not None:
            ended.close()

    def __enter__(self) -> "Droplet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
