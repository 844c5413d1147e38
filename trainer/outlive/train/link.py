"""The trainer's end of the conversation with its agent: who it is, what it got, what became of its saves."""

import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

import outlive
from outlive.errors import OutliveError, ProtocolError
from outlive.staging.arena import Arena, Notes, read_notes
from outlive.staging.channel import Channel, Received
from outlive.staging.control import ControlPage
from outlive.staging.messages import (
    Accepted,
    Committed,
    Ended,
    Failed,
    Fresh,
    Hello,
    Message,
    Refused,
    Restored,
    Welcome,
)
from outlive.staging.parts import PartNotes, parts_of
from outlive.train.ranks import Ranks

_SEND_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0
_REMIND_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The checkpoint to resume from, in memory."""

    packet: Restored
    arena: Arena
    notes: Notes
    ranks: Ranks | None = None

    @property
    def parts(self) -> tuple[PartNotes, ...]:
        """What each rank saved. ``ProtocolError`` if the notes of several can't be told apart."""
        return parts_of(self.notes, world=self.packet.world, image_bytes=self.packet.bytes)


class Stopped(Exception):
    """A signal came while the agent was still preparing."""


class RefusedError(OutliveError):
    """The agent says that this process must not train."""


class Link:
    """An open conversation. A thread of its own receives; ``lost`` turns true when the agent has gone."""

    def __init__(self, channel: Channel, sidecar: "subprocess.Popen[bytes] | None" = None) -> None:
        self.sidecar = sidecar
        self.page: ControlPage
        self.welcome: Welcome
        self.accepted = 0
        self.results: dict[int, Committed | Failed] = {}
        self.refused: Refused | None = None
        self.lost = False
        self.relay: Callable[[Message], None] = lambda message: None
        """Is told all that the agent says once the training has begun."""
        self._channel = channel
        self._changed = threading.Condition()
        self._listener: threading.Thread | None = None

    def open(
        self,
        *,
        of: "tuple[int, str] | None" = None,
        ranks: Ranks | None = None,
        stopped: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = print,
    ) -> Given | None:
        """Say hello and take what the agent gives; None if it has nothing to resume from.

        `of` is the life and the nonce of a trainer that already has its state and lost its agent.
        """
        versions = {
            "outlive": outlive.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }
        life, nonce = of or (0, "")
        hello = Hello(pid=os.getpid(), versions=versions, life=life, nonce=nonce)
        if ranks is not None:
            hello = replace(hello, rank=ranks.rank, world=ranks.world, local_world=ranks.local_world)
        self.send(hello)
        welcome, fds = self._expect(Welcome, fds=1, stopped=stopped, say=say)
        assert isinstance(welcome, Welcome)  # noqa: S101 - it was asked for
        self.welcome = welcome
        self.page = ControlPage.attach(fds[0])
        given = None if of is not None else self._take(ranks, stopped, say)
        self._listener = threading.Thread(target=self._listen, name="outlive-link", daemon=True)
        self._listener.start()
        return given

    def send(self, message: Message, *fds: int) -> None:
        """``EOFError`` if the agent has gone."""
        try:
            self._channel.send(message, fds, timeout=_SEND_SECONDS)
        except TimeoutError:
            raise EOFError("the agent does not read what it is sent") from None

    def wait(self, done: Callable[[], bool], *, seconds: float) -> bool:
        """Until `done`, the agent is gone, it refused us, or the time is up. Whether `done`."""
        with self._changed:
            self._changed.wait_for(lambda: done() or self.lost or self.refused is not None, seconds)
            return done()

    def fail(self, number: int, message: str) -> None:
        """Nothing became of this snapshot, and the agent never saw it."""
        with self._changed:
            self.results[number] = Failed(number=number, message=message)
            self._changed.notify_all()

    def end(self, message: Ended) -> None:
        """The last packet."""
        try:
            self.send(message)
        except EOFError:
            return

    def close(self) -> None:
        """Hang up. A sidecar goes on by itself until what it accepted is a checkpoint."""
        self._channel.close()
        if self._listener is not None:
            self._listener.join()
        if hasattr(self, "page"):
            self.page.close()

    def _take(
        self, ranks: Ranks | None, stopped: Callable[[], bool], say: Callable[[str], None]
    ) -> Given | None:
        message, fds = self._expect(Restored, Fresh, fds=2, stopped=stopped, say=say)
        if isinstance(message, Fresh):
            return None
        assert isinstance(message, Restored)  # noqa: S101 - it was asked for
        try:
            notes = read_notes(fds[1], message.table, message.values)
        finally:
            os.close(fds[1])
        return Given(packet=message, arena=Arena.attach(fds[0], message.bytes), notes=notes, ranks=ranks)

    def _expect(
        self,
        *kinds: type[Message],
        fds: int,
        stopped: Callable[[], bool],
        say: Callable[[str], None],
    ) -> tuple[Message, tuple[int, ...]]:
        """The next packet. It may take as long as a download does, so a signal is heeded meanwhile."""
        began = reminded = time.monotonic()
        while True:
            try:
                received = self._channel.receive(timeout=_PATIENCE_SECONDS)
                break
            except TimeoutError:
                if stopped():
                    raise Stopped from None
                if time.monotonic() - reminded > _REMIND_SECONDS:
                    reminded = time.monotonic()
                    say(f"waiting for the state to resume from ({reminded - began:.0f} s so far)")
            except EOFError:
                raise ProtocolError(
                    "the agent went away before it said what to resume from", hint="see what it printed last"
                ) from None
        message = received.message
        if isinstance(message, kinds) and len(received.fds) == (0 if isinstance(message, Fresh) else fds):
            return message, received.fds
        _close(received)
        if isinstance(message, Refused):
            raise RefusedError(message.message, hint=message.hint)
        raise ProtocolError(f"the agent sent {message.packet} where {kinds[0].packet} was due")

    def _listen(self) -> None:
        while True:
            try:
                received = self._channel.receive()
            except (
                EOFError,
                OSError,
                ValueError,
                ProtocolError,
            ):  # gone, closed by us, or not to be understood
                break
            with self._changed:
                self._hear(received.message, received.fds)
                self._changed.notify_all()
            _close(received)
            self.relay(received.message)
        with self._changed:
            self.lost = True
            self._changed.notify_all()

    def _hear(self, message: Message, fds: Sequence[int]) -> None:
        if isinstance(message, Accepted):
            self.accepted = max(self.accepted, message.number)
        elif isinstance(message, Committed | Failed):
            self.results[message.number] = message
        elif isinstance(message, Refused):
            self.refused = message


def _close(received: Received) -> None:
    for fd in received.fds:
        os.close(fd)
