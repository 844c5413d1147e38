"""A cloud's metadata server, small but real: HTTP, one answer per machine, faults on demand.

Speaks DigitalOcean's `/metadata/v1.json` and `/metadata/v1/...`, and NoCloud's `/nocloud/{user-data,...}`.
By hand: `python tests/fakes/metadata.py --bind 127.0.0.1:8080 --user-data job.yaml`
"""

import argparse
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the provider knows about one machine."""

    identity: int = 4242
    hostname: str = "droplet"
    region: str = "nyc2"
    user_data: str = ""
    vendor_data: str = ""
    address: str = "10.99.0.2"
    mac: str = "02:0f:00:00:00:02"
    public_keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The `v1.json` of DigitalOcean, with the keys its own tools read."""
        ipv4 = {"ip_address": self.address, "netmask": "255.255.255.0", "gateway": "10.99.0.1"}
        nic = {"mac": self.mac, "type": "public", "ipv4": ipv4}
        return {
            "droplet_id": self.identity,
            "hostname": self.hostname,
            "user_data": self.user_data,
            "vendor_data": self.vendor_data,
            "public_keys": list(self.public_keys),
            "region": self.region,
            "interfaces": {"public": [nic]},
            "dns": {"nameservers": ["10.99.0.1"]},
            "floating_ip": {"ipv4": {"active": False}},
            "tags": list(self.tags),
            "features": {"dhcp_enabled": False},
            **self.extra,
        }

    def answer(self, path: str) -> str | None:
        """The body for a path, None where there is nothing of that name."""
        document = self.document()
        plain = {
            "/metadata/v1.json": json.dumps(document),
            "/metadata/v1/id": str(self.identity),
            "/metadata/v1/hostname": self.hostname,
            "/metadata/v1/region": self.region,
            "/metadata/v1/user-data": self.user_data,
            "/metadata/v1/vendor-data": self.vendor_data,
            "/metadata/v1/public-keys": "\n".join(self.public_keys),
            "/metadata/v1/tags": "\n".join(self.tags),
            "/metadata/v1/interfaces/public/0/mac": self.mac,
            "/metadata/v1/interfaces/public/0/ipv4/address": self.address,
            "/nocloud/user-data": self.user_data,
            "/nocloud/vendor-data": self.vendor_data,
            "/nocloud/meta-data": json.dumps(
                {"instance-id": str(self.identity), "local-hostname": self.hostname}
            ),
        }
        return plain.get(path)


class MetadataServer:
    """Serves until closed. Knows a machine by the address it asks from; `requests` tells who asked what."""

    def __init__(self, address: tuple[str, int], *, anyone: Machine | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        self.status = 200  # set to 500, 503 ... to make every answer a failure
        self._machines: dict[str, Machine] = {}
        self.anyone = anyone
        """Who asks from an address that is nobody's."""
        self._server = ThreadingHTTPServer(address, _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metadata")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def know(self, address: str, machine: Machine) -> None:
        """Answer requests from `address` with this machine's facts from now on."""
        self._machines[address] = machine

    def machine(self, address: str) -> Machine | None:
        """Who is asking."""
        return self._machines.get(address, self.anyone)

    def close(self) -> None:
        """Stop answering: connections are refused from now on."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> "MetadataServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _handler(server: MetadataServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that says nothing must not hold a thread

        def do_GET(self) -> None:
            asker = str(self.client_address[0])
            server.requests.append((asker, self.path))
            machine = server.machine(asker)
            body = None if machine is None else machine.answer(self.path.rstrip("/"))
            status = server.status if body is not None else 404
            sent = (body if body is not None and status == 200 else "").encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *arguments: object) -> None:
            """Quiet: `requests` has it."""

    return Handler


def main() -> None:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bind", default="127.0.0.1:8080", help="address:port to listen on")
    parser.add_argument("--user-data", type=Path, help="file to hand out as user-data")
    parser.add_argument("--hostname", default="droplet")
    chosen = parser.parse_args()
    host, port = chosen.bind.rsplit(":", 1)
    user_data = chosen.user_data.read_text() if chosen.user_data else ""
    machine = Machine(hostname=chosen.hostname, user_data=user_data)
    with MetadataServer((host, int(port)), anyone=machine) as server:
        print(f"{server.url}/metadata/v1.json", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
