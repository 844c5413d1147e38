"""Carries one signed request to the server and its answer back, and gives up when nothing moves.

botocore serialises, signs and parses; the connections are ours, because only their owner can end a request
that stalls.
"""

import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, cast
from urllib.parse import urlsplit

import urllib3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSPreparedRequest,
    AWSResponse,
)
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    ResponseStreamingError,
    SSLError,
)
from botocore.httpsession import get_cert_path, mask_proxy_url
from botocore.utils import get_environ_proxies
from urllib3.exceptions import (
    ConnectTimeoutError as Urllib3ConnectTimeout,
)
from urllib3.exceptions import (
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
)
from urllib3.exceptions import (
    SSLError as Urllib3SSLError,
)

from outlive.objects.s3.watchdog import Flight, Patience, Watchdog

_PIECE_BYTES = 128 * 1024
_CONNECTIONS = 64
_BACKSTOP_SECONDS = 3600.0
"""The socket's own timeout. The watchdog acts long before; a short one would fail slow but living links."""

_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

_current = threading.local()
"""``flight``: the request that this thread is sending."""


class Stalled(HTTPClientError):
    """The watchdog ended the request."""

    fmt = "{error}"


class _Watched:
    """Put before a connection: tells the thread's flight which socket it uses and how much has been sent."""

    sock: Any

    def connect(self) -> None:
        _connection(super()).connect()
        self._show_socket()

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._show_socket()
        _connection(super()).request(*args, **kwargs)

    def send(self, data: Any) -> None:
        _connection(super()).send(data)
        _current.flight.moved += len(data)

    def getresponse(self) -> Any:
        flight: Flight = _current.flight
        flight.answering()
        response = _connection(super()).getresponse()
        flight.answered()
        return response

    def _show_socket(self) -> None:
        if isinstance(self.sock, socket.socket):
            self.sock.settimeout(_BACKSTOP_SECONDS)
            _current.flight.socket = self.sock


def _connection(parent: Any) -> Any:
    """What comes after ``_Watched`` in a class: mypy can't know."""
    return parent


class _Plain(_Watched, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _Secure(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _PlainPool(AWSHTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _Secure


class Transport:
    """Connections to one endpoint. After a fork the child makes its own: two processes ruin a TLS stream."""

    def __init__(self, endpoint: str, *, verify: str | bool, patience: Patience) -> None:
        self._verify = verify
        self._patience = patience
        self._proxy = get_environ_proxies(endpoint).get(urlsplit(endpoint).scheme)
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._watchdog = Watchdog(self._patience)
        self._pools = self._connections()

    def _connections(self) -> urllib3.PoolManager:
        settings: dict[str, Any] = {
            "maxsize": _CONNECTIONS,
            "timeout": urllib3.Timeout(connect=self._patience.connect_seconds, read=_BACKSTOP_SECONDS),
            "socket_options": _SOCKET_OPTIONS,
            "blocksize": _PIECE_BYTES,
            "cert_reqs": "CERT_REQUIRED" if self._verify else "CERT_NONE",
            "ca_certs": get_cert_path(cast("Any", self._verify)) if self._verify else None,
        }
        pools: urllib3.PoolManager
        if self._proxy:
            pools = urllib3.ProxyManager(self._proxy, **settings)
        else:
            pools = urllib3.PoolManager(**settings)
        pools.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
        return pools

    def close(self) -> None:
        self._pools.clear()

    def cut(self) -> None:
        """End every request under way, except those that are still connecting: these have their own limit."""
        self._watchdog.cut()

    def send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """Botocore's ``before-send`` hook: whatever it returns is the answer."""
        if self._process != os.getpid():
            self._start()
        flight = self._watchdog.begin()
        _current.flight = flight
        try:
            response = self._open(request, flight)
        except BaseException:
            self._watchdog.end(flight)
            raise
        stream = Stream(response, flight, self._watchdog)
        answer = AWSResponse(request.url, response.status, cast("Any", response.headers), stream)
        if not request.stream_output:
            answer.content  # noqa: B018  reads it, so that the connection is free again
        return answer

    def _open(self, request: AWSPreparedRequest, flight: Flight) -> urllib3.BaseHTTPResponse:
        url = urlsplit(request.url)
        target = request.url if self._proxy and url.scheme == "http" else _target(request.url)
        try:
            return self._pools.connection_from_url(request.url).urlopen(
                request.method,
                target,
                body=cast("Any", request.body),
                headers=cast("Any", request.headers),
                retries=urllib3.Retry(False),
                assert_same_host=False,
                preload_content=False,
                decode_content=False,
                enforce_content_length=False,
            )
        except (HTTPError, HTTPException, OSError) as error:
            if flight.stalled:
                raise Stalled(error=flight.stalled) from error
            raise self._explained(error, request.url) from error

    def _explained(self, error: Exception, url: str) -> Exception:
        endpoint = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        if isinstance(error, Urllib3SSLError):
            return SSLError(endpoint_url=endpoint, error=error)
        if isinstance(error, ProxyError):
            return ProxyConnectionError(proxy_url=mask_proxy_url(self._proxy or ""), error=error)
        if isinstance(error, NameResolutionError | NewConnectionError):
            return EndpointConnectionError(endpoint_url=endpoint, error=_reason(error))
        if isinstance(error, Urllib3ConnectTimeout):
            return ConnectTimeoutError(endpoint_url=endpoint, error=error)
        if isinstance(error, urllib3.exceptions.ProtocolError | HTTPException | OSError):
            return ConnectionClosedError(endpoint_url=endpoint, error=error)
        return HTTPClientError(error=error)


class Stream:
    """The body of an answer, as botocore wants it.

    Read to its end, the connection is used again; left early, it is closed.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, flight: Flight, watchdog: Watchdog) -> None:
        self._response = response
        self._flight = flight
        self._watchdog = watchdog
        # urllib3's own readinto reads into a fresh piece and copies that.
        plain = getattr(response, "_original_response", None)
        self._plain = plain if plain is not None and not getattr(plain, "chunked", True) else None

    def read(self, count: int | None = None) -> bytes:
        if count is None:
            return b"".join(self.stream())
        try:
            piece = self._response.read(min(count, _PIECE_BYTES))
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            raise self._broken(error) from error
        return self._counted(piece)

    def readinto(self, buffer: memoryview) -> int:
        """Some bytes, at most a piece; 0 at the end."""
        view = buffer[:_PIECE_BYTES]
        if self._plain is None:
            piece = self.read(len(view))
            view[: len(piece)] = piece
            return len(piece)
        try:
            count = int(self._plain.readinto(view))
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            raise self._broken(error) from error
        self._moved(count)
        return count

    def stream(self) -> Iterator[bytes]:
        while piece := self.read(_PIECE_BYTES):
            yield piece

    def close(self) -> None:
        self._watchdog.end(self._flight)
        if self._plain is not None and self._plain.isclosed():
            self._response.release_conn()
        else:
            self._response.close()

    def _counted(self, piece: bytes) -> bytes:
        self._moved(len(piece))
        return piece

    def _moved(self, count: int) -> None:
        if count:
            self._flight.moved += count
            return
        if self._flight.stalled:  # a connection that was cut ends like a short answer
            raise self._broken(None)
        self.close()

    def _broken(self, error: Exception | None) -> Exception:
        self.close()
        if self._flight.stalled:
            return Stalled(error=self._flight.stalled)
        return ResponseStreamingError(error=error)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__
    return str(cause or error)
