"""An HTTP server that answers whatever a test says, also what no decent server would."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``pieces`` are sent one after the other, so a generator may wait in between, or end early."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] = ()
    length: int | None = None


def error(status: int, code: str, message: str = "") -> Answer:
    """What S3 says when it refuses."""
    xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return Answer(status=status, pieces=[xml], length=len(xml))


@dataclass(slots=True)
class Scripted:
    """A server that runs. ``requests``: what it got, in order; ``leaving``: set when the test is over."""

    answer: Callable[[Request], Answer]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    leaving: threading.Event = field(default_factory=threading.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Scripted

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=unquote(url.path),
            query={name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length),
        )
        self.script.requests.append(request)
        answer = self.script.answer(request)
        if "Date" in answer.headers:  # it has a clock of its own
            self.send_response_only(answer.status)
        else:
            self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(answer.length or 0))
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = 0
        with contextlib.suppress(OSError):  # the client may have gone
            for piece in answer.pieces:
                self.wfile.write(piece)
                sent += len(piece)
        if sent != (answer.length or 0):
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_: object) -> None:
        """A test's own output is enough."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a handler may be waiting on purpose

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news here."""


@contextlib.contextmanager
def scripted(answer: Callable[[Request], Answer]) -> Iterator[Scripted]:
    """A server with this behaviour for as long as the block lasts."""
    script = Scripted(answer)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"script": script}))
    script.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield script
    finally:
        script.leaving.set()
        server.shutdown()
        server.server_close()
        thread.join()
