"""One provider's metadata server on an address of one's own, with its faults. Runs until closed."""

import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from outlive_agent.emulate.answers import ANSWERS, Request, Response
from outlive_agent.emulate.faults import Fault
from outlive_agent.emulate.stage import Stage

HUGE_BYTES = 1 << 20
DRIP_SECONDS = 0.05


class Emulator:
    """``stage``: what it announces. ``faults`` may change at any time. ``requests``: what was asked."""

    def __init__(
        self, provider: str, *, address: tuple[str, int] = ("127.0.0.1", 0), stage: Stage | None = None
    ) -> None:
        self.provider = provider
        self.stage = stage or Stage()
        self.faults: Sequence[Fault] = ()
        self.requests: list[str] = []
        self.closing = threading.Event()
        self._server = _Server(address, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="emulator")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Hang up on everyone; connections are refused from now on."""
        self.closing.set()
        with self.stage.changed:
            self.stage.changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that closing ends them."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], emulator: Emulator) -> None:
        self.open: set[socket.socket] = set()
        self.emulator = emulator
        super().__init__(address, _Handler)

    def hang_up(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go in two writes, and the second must not wait 40 ms
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self.server.emulator.requests.append(f"{self.command} {self.path}")
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            method=self.command,
            path=self.path,
            headers=headers,
            body=self.rfile.read(min(length, 1 << 16)),
        )
        response = ANSWERS[self.server.emulator.provider](
            request, self.server.emulator.stage, self.server.emulator.closing
        )
        token = request.method == "PUT"
        fault = next(
            (f for f in self.server.emulator.faults if (response.notice or token) and f.strikes(token=token)),
            None,
        )
        if fault is None:
            self._send(response)
        else:
            self._fail(fault.name)

    do_PUT = do_POST = do_GET

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def _fail(self, name: str) -> None:
        if name == "hang":
            self.server.emulator.closing.wait()
            self.close_connection = True
        elif name == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
        elif name == "drip":
            self._drip()
        elif name == "redirect":
            self._send(Response(status=302, headers={"Location": "http://192.0.2.1/login"}))
        elif name.isdecimal():
            self._send(Response(status=int(name)))
        else:
            bodies = {
                "garbage": b"\x00\xff{[not json",
                "huge": b"x" * HUGE_BYTES,
                "html": b"<html>please log in</html>",
                "empty": b"",
            }
            self._send(Response(body=bodies[name]))

    def _drip(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.server.emulator.closing.wait(DRIP_SECONDS):
                self.wfile.write(b"x")

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet: ``requests`` has it."""
