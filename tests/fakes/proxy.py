"""A proxy before an S3 server that goes wrong in one exact way: whatever a network or a gateway does."""

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What came, before its body was read."""

    method: str
    path: str
    headers: dict[str, str]
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Exchange:
    """One request that goes wrong: a fault reads, forwards, answers and breaks off as it likes."""

    def __init__(self, handler: "_Handler", request: Request) -> None:
        self._handler = handler
        self.request = request

    def read(self, count: int | None = None) -> bytes:
        return self._handler.rfile.read(self.request.length if count is None else count)

    def forward(self, body: bytes) -> Answer:
        """What the server says to it; it has done the work then."""
        return self._handler.forward(self.request, body)

    def answer(self, answer: Answer, *, length: int | None = None) -> None:
        self._handler.reply(answer, length=length)

    def refuse(self, status: int, code: str) -> None:
        xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>so it goes</Message></Error>"
        self.answer(Answer(status=status, headers={"Content-Type": "application/xml"}, body=xml.encode()))

    def reset(self) -> None:
        """The connection is gone, as after a crash of what is in between."""
        self._handler.reset()


@dataclass(slots=True)
class Proxy:
    """Runs before ``upstream``. ``fault`` is asked for each request: what to do instead, or None."""

    upstream: str
    fault: Callable[[Request], Callable[[Exchange], None] | None]
    port: int = 0
    hit: int = 0
    """How many requests went wrong."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def chosen(self, request: Request) -> Callable[[Exchange], None] | None:
        with self.lock:
            found = self.fault(request)
            self.hit += found is not None
            return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_any(self) -> None:
        request = Request(
            method=self.command,
            path=self.path,
            headers=dict(self.headers.items()),
            length=int(self.headers.get("Content-Length") or 0),
        )
        fault = self.proxy.chosen(request)
        exchange = Exchange(self, request)
        if fault is not None:
            fault(exchange)
        else:
            exchange.answer(exchange.forward(exchange.read()))

    def forward(self, request: Request, body: bytes) -> Answer:
        upstream = http.client.HTTPConnection(urlsplit(self.proxy.upstream).netloc, timeout=30)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
            upstream.request(request.method, request.path, body=body, headers=headers)
            response = upstream.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP}
            return Answer(status=response.status, headers=kept, body=response.read())
        finally:
            upstream.close()

    def reply(self, answer: Answer, *, length: int | None) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", answer.headers.get("Content-Length", "0"))
            self.end_headers()
            return
        self.send_header("Content-Length", str(len(answer.body) if length is None else length))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have gone
            self.wfile.write(answer.body)

    def reset(self) -> None:
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)  # closing sends RST
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_: object) -> None:
        """A test's own output is enough."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news here."""

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """No polite goodbye: it would come before the reset."""
        self.close_request(request)


@contextlib.contextmanager
def proxied(upstream: str, fault: Callable[[Request], Callable[[Exchange], None] | None]) -> Iterator[Proxy]:
    """A proxy for as long as the block lasts."""
    proxy = Proxy(upstream, fault)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
