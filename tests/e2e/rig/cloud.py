"""The provider's side of the network: what a guest reaches, and nothing beyond it."""

import itertools
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from e2e.rig.errors import RigError
from e2e.rig.forward import Forward
from e2e.rig.host import ensure_host
from e2e.rig.namespace import NetworkNamespace
from e2e.rig.owner import owner
from e2e.rig.processes import TETHER, spawn
from fakes.metadata import MetadataServer

T = TypeVar("T")

ADDRESS = "10.99.0.1"
METADATA_ADDRESS = "169.254.169.254"


class Nic:
    """A guest's network card: its namespace, and the cable to the cloud's switch."""

    def __init__(self, *, namespace: NetworkNamespace, port: str, cloud: NetworkNamespace) -> None:
        self.namespace = namespace
        self._port = port
        self._cloud = cloud

    def unplug(self) -> None:
        """Packets vanish, as in an outage: nobody is told, connections hang."""
        self._cloud.ip("link", "set", self._port, "down")

    def plug(self) -> None:
        """The cable is back."""
        self._cloud.ip("link", "set", self._port, "up")

    def close(self) -> None:
        """Both ends vanish. The port goes at once, since a namespace may take a moment to end."""
        self._cloud.ip("link", "delete", self._port)
        self.namespace.close()


class Cloud:
    """A switch at 10.99.0.1/24 and 169.254.169.254/16, a metadata server, and whatever a test publishes.

    It is a network namespace of this process: two clouds, or two test runs, never see each other.
    """

    def __init__(self) -> None:
        ensure_host()
        owner()  # sweeps before anything is made
        self._numbers = itertools.count(2)
        self._forwards: list[Forward] = []
        self._network = NetworkNamespace()
        self._network.ip("link", "add", "name", "cloud0", "type", "bridge")
        self._network.ip("address", "add", f"{ADDRESS}/24", "dev", "cloud0")
        self._network.ip("address", "add", f"{METADATA_ADDRESS}/16", "dev", "cloud0")
        for device in ("lo", "cloud0"):
            self._network.ip("link", "set", device, "up")
        self.metadata = self.call(lambda: MetadataServer((METADATA_ADDRESS, 80)))

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` inside the cloud's network: what it opens or starts stays there."""
        return self._network.call(function)

    def popen(self, arguments: Sequence[str], *, output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a server in the cloud. It ends with this process at the latest."""
        network = self._network.descriptor
        enter = ("nsenter", f"--net=/proc/self/fd/{network}", "--")
        return spawn([*TETHER, *enter, *arguments], output=output, pass_fds=[network])

    def publish(self, port: int, *, target: tuple[str, int]) -> Forward:
        """Show guests a server of the host's (an S3 server on 127.0.0.1, say) as 10.99.0.1:`port`."""
        forward = Forward(self._network.call)
        forward.start((ADDRESS, port), target=target)
        self._forwards.append(forward)
        return forward

    def reserve(self) -> int:
        """A guest's number: it makes its address 10.99.0.N and its MAC, and is never given twice."""
        number = next(self._numbers)
        if number > 254:
            raise RigError("a cloud has room for 253 guests", hint="use a new Cloud per test")
        return number

    def connect(self, number: int) -> Nic:
        """A fresh network for one life of guest `number`, cabled, with its addresses set and no way out."""
        guest = NetworkNamespace()
        port = f"vm{number}"
        fd = guest.descriptor
        peer = ("peer", "name", "eth0", "address", mac(number), "netns", f"/proc/self/fd/{fd}")
        self._network.ip("link", "add", "name", port, "type", "veth", *peer, pass_fds=(fd,))
        self._network.ip("link", "set", port, "master", "cloud0", "up")
        guest.ip("address", "add", f"{address(number)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            guest.ip("link", "set", device, "up")
        # From its one address, by which the metadata server tells guests apart.
        guest.ip("route", "add", "169.254.0.0/16", "dev", "eth0", "src", address(number))
        return Nic(namespace=guest, port=port, cloud=self._network)

    def tap(self, number: int) -> str:
        """A card for a virtual machine: its device's name, for a program in the cloud's network to open."""
        port = f"tap{number}"
        self._network.ip("tuntap", "add", "dev", port, "mode", "tap")
        self._network.ip("link", "set", port, "master", "cloud0", "up")
        return port

    def close(self) -> None:
        """Close the servers and let the network go. Close the guests first."""
        with ExitStack() as each:  # all of it, also when one fails
            each.callback(self._network.close)
            each.callback(self.metadata.close)
            for forward in self._forwards:
                each.callback(forward.close)

    def __enter__(self) -> "Cloud":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def address(number: int) -> str:
    """The address of guest `number`."""
    return f"10.99.0.{number}"


def mac(number: int) -> str:
    """The MAC of guest `number`: locally administered, and the same in every life of its disk."""
    return f"02:0f:00:00:00:{number:02x}"
