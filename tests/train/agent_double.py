"""An agent that speaks the real protocol over a real socket, and keeps the newest snapshot in memory."""

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import ProtocolError
from outlive.staging.arena import Arena, Notes, notes_to_fd, read_notes
from outlive.staging.channel import Channel, Listener, connect
from outlive.staging.control import ControlPage
from outlive.staging.messages import (
    Accepted,
    ArenaOffer,
    Committed,
    Ended,
    Failed,
    Fresh,
    Hello,
    Message,
    Mode,
    Refused,
    Restored,
    SnapshotTaken,
    Welcome,
)

WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A snapshot that this agent has."""

    packet: SnapshotTaken
    image: bytes
    notes: Notes
    life: int


class AgentDouble:
    """Serves one trainer after the other. ``with`` ends its thread."""

    def __init__(self, path: Path, *, mode: Mode = "daemon") -> None:
        self.path = path
        self.mode: Mode = mode
        self.kept: list[Kept] = []
        self.heard: list[Message] = []
        self.life = 0
        self.page: ControlPage | None = None
        self.every_steps = 0
        self.refuse = ""
        self.fail = ""
        self.upload = threading.Event()
        """Cleared: snapshots are accepted, but nothing is stored and no arena is freed."""
        self.upload.set()
        self.gone = threading.Event()
        """Set while no trainer is connected."""
        self._channel: Channel | None = None
        self._arenas: dict[int, Arena] = {}
        self._listener = Listener(path, uids=[os.getuid()])
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def last(self) -> Kept:
        return self.kept[-1]

    @property
    def ended(self) -> Ended:
        """How the last trainer ended; waits for it."""
        assert self.gone.wait(WAIT_SECONDS)
        return next(message for message in reversed(self.heard) if isinstance(message, Ended))

    @property
    def asked(self) -> ControlPage:
        assert self.page is not None
        return self.page

    def tell(self, message: Message) -> None:
        assert self._channel is not None
        self._channel.send(message)

    def hang_up(self) -> None:
        """As if the agent had died."""
        assert self._channel is not None
        self._channel.close()

    def close(self) -> None:
        self._closing = True
        self.upload.set()
        if self._channel is not None:
            self._channel.close()
        with contextlib.suppress(OSError, ProtocolError):
            connect(self.path).close()
        self._thread.join(WAIT_SECONDS)
        self._listener.close()

    def __enter__(self) -> "AgentDouble":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing:
            channel = self._listener.accept()
            if self._closing:
                channel.close()
                return
            self._channel = channel
            self.gone.clear()
            try:
                self._converse(channel)
            except EOFError:
                pass
            finally:
                channel.close()
                for arena in self._arenas.values():
                    arena.close()
                self._arenas.clear()
                if self.page is not None:
                    self.page.close()
                self.gone.set()

    def _converse(self, channel: Channel) -> None:
        hello, _ = channel.receive(WAIT_SECONDS)
        assert isinstance(hello, Hello)
        self.heard.append(hello)
        if self.refuse:
            channel.send(Refused(message=self.refuse, hint="start another"))
            return
        if not hello.life:
            self.life += 1
        self.page = ControlPage.create()
        self.page.every_steps = self.every_steps
        welcome = Welcome(run="double", life=self.life, nonce="n", mode=self.mode, store="memory")
        channel.send(welcome, [self.page.fd])
        if not hello.life:
            self._give(channel)
        while True:
            message, fds = channel.receive()
            self.heard.append(message)
            if isinstance(message, ArenaOffer):
                self._arenas[message.arena] = Arena.attach(fds[0], message.bytes, writable=False)
            elif isinstance(message, SnapshotTaken):
                self._keep(channel, message, fds[0])
            elif isinstance(message, Ended):
                return

    def _give(self, channel: Channel) -> None:
        if not self.kept:
            channel.send(Fresh())
            return
        kept = self.last
        arena = self._arenas[0] = Arena.create(len(kept.image))
        arena.view[:] = kept.image
        notes = notes_to_fd(*kept.notes)
        packet = Restored(
            life=kept.life,
            step=kept.packet.step,
            epoch=kept.packet.epoch,
            bytes=len(kept.image),
            table=len(kept.notes.table),
            values=len(kept.notes.values),
            source="memory",
            seconds=0.0,
        )
        channel.send(packet, [arena.fd, notes])
        os.close(notes)

    def _keep(self, channel: Channel, message: SnapshotTaken, fd: int) -> None:
        notes = read_notes(fd, message.table, message.values)
        os.close(fd)
        image = bytes(self._arenas[message.arena].view[: message.bytes])
        channel.send(Accepted(number=message.number))
        assert self.upload.wait(WAIT_SECONDS)
        assert self.page is not None
        self.page.free(message.arena, message.number)
        if self.fail:
            answer: Message = Failed(number=message.number, message=self.fail)
        else:
            self.kept.append(Kept(packet=message, image=image, notes=notes, life=self.life))
            size = message.bytes
            answer = Committed(
                number=message.number, life=self.life, step=message.step, bytes=size, sent=size, seconds=0.0
            )
        with contextlib.suppress(EOFError):  # it may have said that it ended, and be gone
            channel.send(answer)
