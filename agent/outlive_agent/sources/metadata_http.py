"""Asks a metadata server: every question ends by its deadline, whatever the server does.

No proxy, no redirect that is followed, no body beyond a bound. Connections are kept, since the busiest
source asks once a second.
"""

import http.client
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.errors import OutliveError

SECONDS = 5.0
"""How long a question may take. Azure's own team calls one second too short."""
AT_MOST = 1 << 16
"""The longest body that is read; real ones have a few hundred bytes."""


class NoAnswer(OutliveError):
    """The server said nothing that can be used. For ``patience_seconds`` that is nothing unusual."""

    def __init__(self, message: str, *, hint: str = "", patience_seconds: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.patience_seconds = patience_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said. Names of ``headers`` are in lower case."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace").strip()


def refusal(answer: Answer) -> NoAnswer:
    """What to say of a status that nobody expected."""
    if answer.status in {301, 302, 303, 307, 308}:
        return NoAnswer(
            "it redirects, as no metadata server does",
            hint="a captive portal or a proxy answers in its place",
        )
    return NoAnswer(f"HTTP {answer.status}")


class Metadata:
    """One server. Not for several threads at once."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        scheme, _, rest = url.partition("://")
        self._authority = rest.rstrip("/")
        self._tls = scheme == "https"
        self._headers = dict(headers or {})
        self._seconds = seconds
        self._clock = clock
        self._connection: _Connection | None = None

    def get(
        self, path: str, *, headers: Mapping[str, str] | None = None, seconds: float | None = None
    ) -> Answer:
        """Ask for what lies at ``path``. ``NoAnswer`` if that takes too long, in all."""
        return self.ask("GET", path, headers=headers, seconds=seconds)

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """As :meth:`get`, with any method."""
        deadline = self._clock() + (self._seconds if seconds is None else seconds)
        told = {"Accept-Encoding": "identity", **self._headers, **(headers or {})}
        try:
            return self._once(method, path, headers=told, body=body, deadline=deadline)
        except _Stale:  # the server had closed a connection that lay idle: that says nothing about it
            return self._once(method, path, headers=told, body=body, deadline=deadline)

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None, deadline: float
    ) -> Answer:
        used = self._connection is not None and self._connection.sock is not None
        began = self._clock()
        whole = False
        try:
            connection = self._connected()
            connection.bound(deadline)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            content = response.read(AT_MOST + 1)
            if len(content) > AT_MOST:
                raise NoAnswer(f"more than {AT_MOST >> 10} KiB, so this is no metadata server")
            if response.length:
                raise NoAnswer("the answer is cut short")
            whole = response.isclosed()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, body=content, headers=told)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            if used:
                raise _Stale from error
            raise NoAnswer("it hangs up") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(_reason(error, seconds=deadline - began)) from None
        finally:
            if not whole:
                self.close()

    def _connected(self) -> "_Connection":
        if self._connection is None:
            host, _, port = self._authority.partition(":")
            self._connection = _Connection(host, int(port or (443 if self._tls else 80)), clock=self._clock)
            self._connection.tls = self._tls
        return self._connection


class _Stale(Exception):
    """A connection that was kept is dead."""


class _Connection(http.client.HTTPConnection):
    """Every read waits for what is left of the whole question, not for so many seconds each."""

    tls = False

    def __init__(self, host: str, port: int, *, clock: Callable[[], float]) -> None:
        super().__init__(host, port)
        self._clock = clock
        self._deadline = 0.0

    def bound(self, deadline: float) -> None:
        """The next question ends by then."""
        self._deadline = deadline
        if isinstance(self.sock, Bounded):
            self.sock.bound(deadline, self._clock)

    def connect(self) -> None:
        last: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM
        ):
            bounded: Any = _Socket(family, kind, protocol)
            try:
                bounded.bound(self._deadline, self._clock)
                bounded.connect(address)
                if self.tls:
                    from outlive_agent.sources.metadata_tls import wrap  # late: ssl costs, and few need it

                    bounded = wrap(bounded, self.host)
                    bounded.bound(self._deadline, self._clock)
            except OSError as error:
                bounded.close()
                last = error
            else:
                self.sock = bounded
                return
        raise last or OSError("no address")


class Bounded:
    """Mixed into a socket: no single read, and no drip of reads, lasts beyond the deadline."""

    _deadline = 0.0
    _clock: Callable[[], float] = staticmethod(time.monotonic)

    def bound(self, deadline: float, clock: Callable[[], float]) -> None:
        """From here on everything ends by then."""
        self._deadline, self._clock = deadline, clock
        self.settimeout(self._left())  # type: ignore[attr-defined]

    def recv_into(self, *arguments: Any) -> int:
        self.settimeout(self._left())  # type: ignore[attr-defined]
        count: int = super().recv_into(*arguments)  # type: ignore[misc]
        return count

    def _left(self) -> float:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        return left


class _Socket(Bounded, socket.socket):
    pass


def _reason(error: Exception, *, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused"
    if isinstance(error, socket.gaierror):
        return "its name can't be resolved"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer is cut short"
    if isinstance(error, http.client.HTTPException | ValueError):
        return "what it says is not HTTP"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
