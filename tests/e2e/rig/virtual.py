"""A full virtual machine: a kernel and a disk of its own, DMI, the ACPI power button. Emulated, so slow."""

import json
import shutil
import socket
import subprocess
import time
from types import TracebackType

from e2e.rig.cloud import Cloud, address, mac
from e2e.rig.errors import RigError, TimedOut
from e2e.rig.journal import Journal
from e2e.rig.owner import owner
from e2e.rig.processes import run
from e2e.rig.virtual_image import ensure_virtual_image
from fakes.metadata import Machine

# By the console one sees what the journal says: the disk can be read only once the machine is off.
_KERNEL = "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet systemd.journald.forward_to_console=1"
# One virtual processor and one thread: more of them stalled. No SVM: KVM within KVM is not what is tested.
_HARDWARE = (
    *("-machine", "pc", "-accel", "tcg,thread=single", "-cpu", "Nehalem", "-smp", "1", "-m", "2048"),
    *("-display", "none", "-no-reboot", "-nodefaults"),
)
_SERIAL = 4242


class VirtualMachine:
    """Finds its user-data as every droplet does: DMI says DigitalOcean, and the metadata server answers."""

    def __init__(self, cloud: Cloud, user_data: str) -> None:
        self._image = ensure_virtual_image()
        self.name = owner().next_name()
        self.number = cloud.reserve()
        self._cloud = cloud
        self._folder = owner().folder / self.name
        self._folder.mkdir(parents=True)
        self._disk = self._folder / "disk"
        run(["cp", "--sparse=always", str(self._image.disk), str(self._disk)], timeout=300)
        self._process: subprocess.Popen[bytes] | None = None
        about = Machine(
            identity=_SERIAL,
            hostname=f"virtual-{self.number}",
            user_data=user_data,
            address=address(self.number),
            mac=mac(self.number),
        )
        # It first asks from a link-local address of its own choice.
        cloud.metadata.anyone = about

    def boot(self) -> None:
        """Switch on."""
        port = self._cloud.tap(self.number)
        drive = f"file={self._disk},format=raw,if=virtio,cache=writeback"
        network = ("-netdev", f"tap,id=n,ifname={port},script=no,downscript=no")
        command = [
            *("qemu-system-x86_64", *_HARDWARE),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd), "-append", _KERNEL),
            *("-drive", drive, *network),
            *("-device", f"virtio-net-pci,netdev=n,mac={mac(self.number)},romfile="),
            *("-smbios", f"type=1,manufacturer=DigitalOcean,product=Droplet,serial={_SERIAL}"),
            *("-serial", f"file:{self._folder / 'console.log'}"),
            *("-qmp", f"unix:{self._folder / 'qmp'},server=on,wait=off"),
        ]
        with (self._folder / "qemu.log").open("ab") as log:
            self._process = self._cloud.popen(command, output=log.fileno())

    def console(self) -> str:
        """All that was said since it was switched on, the journal among it."""
        log = self._folder / "console.log"
        return log.read_text(errors="replace").replace("\r", "") if log.exists() else ""

    def wait_for(self, text: str, *, within: float) -> str:
        """Until a line with that text is on the console; gives the line."""
        deadline = time.monotonic() + within
        while True:
            off = self._on().poll() is not None
            said = self.console().splitlines()
            if found := [line for line in said if text in line]:
                return found[0]
            if off or time.monotonic() > deadline:
                state = "it is off" if off else f"not after {within:.0f} s"
                log = (self._folder / "qemu.log").read_text()
                raise TimedOut(f"{self.name}: {state}: {text!r}\n{log}" + "\n".join(said[-40:]))
            time.sleep(0.5)

    def press_power_button(self) -> None:
        """ACPI tells the kernel, the kernel tells logind, and that powers off."""
        with socket.socket(socket.AF_UNIX) as monitor, monitor.makefile("rw") as lines:
            monitor.settimeout(30)
            monitor.connect(str(self._folder / "qmp"))
            for command in ("qmp_capabilities", "system_powerdown"):
                lines.write(json.dumps({"execute": command}) + "\n")
                lines.flush()
                while "return" not in json.loads(lines.readline()):
                    pass  # the greeting, and events

    def wait_off(self, *, within: float) -> None:
        """Until it has powered off."""
        try:
            code = self._on().wait(within)
        except subprocess.TimeoutExpired:
            tail = "\n".join(self.console().splitlines()[-40:])
            raise TimedOut(f"{self.name}: still on after {within:.0f} s\n{tail}") from None
        if code:
            raise RigError(f"qemu ended with {code}: {(self._folder / 'qemu.log').read_text()}")

    def journal(self) -> Journal:
        """What a machine that is off has written on its disk."""
        copy = self._folder / "journal"
        copy.mkdir(exist_ok=True)
        run(
            ["e2fsck", "-p", str(self._disk)], timeout=300, check=False
        )  # what lies in the file system's journal
        run(["debugfs", "-R", f"rdump /var/log/journal {copy}", str(self._disk)], timeout=60)
        return Journal(copy / "journal")

    def close(self) -> None:
        """Take it away, disk and all."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder)

    def _on(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RigError(f"{self.name} was not switched on")
        return self._process

    def __enter__(self) -> "VirtualMachine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
