"""Lets trainers in: a thread that accepts, and one a trainer that reads. They post events, no more."""

import os
import select
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from outlive.errors import OutliveError, ProtocolError
from outlive.staging.channel import Channel, Listener
from outlive.staging.messages import Hello
from outlive_agent.events import PacketCame, Post, TrainerCame, TrainerGone
from outlive_agent.journal import Journal

HELLO_SECONDS = 10.0
AGAIN_SECONDS = 1.0
"""After a connection could not be taken, for want of descriptors: it waits, and may find some then."""


class Door:
    """The agent's socket."""

    def __init__(
        self, path: Path, *, uids: Collection[int], post: Post, journal: Journal, mode: int = 0o600
    ) -> None:
        self._listener = Listener(path, uids=uids, mode=mode)
        self._post = post
        self._journal = journal
        self._closing, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more trainers."""
        os.write(self._wake, b"x")
        self._thread.join()
        self._listener.close()
        os.close(self._closing)
        os.close(self._wake)

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._closing, select.POLLIN)
        ill = False
        while self._closing not in (ready := [fd for fd, _ in poll.poll()]):
            if not ready:
                continue
            try:
                channel = self._listener.accept()
            except ProtocolError as error:
                self._journal.problem("a connection was refused", error)
            except OSError as error:
                if not ill:
                    self._journal.warning(f"a training can't be let in (trying again): {error}")
                ill = True
                select.select([self._closing], [], [], AGAIN_SECONDS)
            else:
                ill = False
                read(channel, self._post)


def read(channel: Channel, post: Post) -> None:
    """Start to read what this trainer says."""
    threading.Thread(target=_read, args=(channel, post), name="trainer", daemon=True).start()


def _read(channel: Channel, post: Post) -> None:
    try:
        first = channel.receive(HELLO_SECONDS)
        if not isinstance(first.message, Hello):
            raise ProtocolError("the first packet is not a hello")
        post(TrainerCame(channel=channel, hello=first.message))
        alive = _pidfd(channel.peer.pid)
        try:
            while _more(channel, alive):
                post(PacketCame(channel=channel, received=channel.receive()))
        finally:
            if alive is not None:
                os.close(alive)
        post(TrainerGone(channel=channel))
    except OutliveError as error:
        post(TrainerGone(channel=channel, error=error))
    except (EOFError, OSError, ValueError):  # ValueError: we closed the channel ourselves
        post(TrainerGone(channel=channel))


def _more(channel: Channel, alive: int | None) -> bool:
    """Wait for a packet. False if the trainer died and everything it had said is read.

    The end of file alone won't do: a forked worker holds the socket open after its parent was killed.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    if alive is not None:
        poll.register(alive, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    return channel.fileno() in ready


def _pidfd(pid: int) -> int | None:
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None
