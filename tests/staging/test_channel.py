"""The socket between trainer and agent."""

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.errors import ProtocolError
from outlive.staging.channel import MAX_FDS, Channel, Listener, connect
from outlive.staging.messages import MAX_PACKET_BYTES, Accepted, ArenaOffer, Fresh, Refused


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    """Two ends."""
    one, other = Channel.pair()
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """A short path for a socket."""
    with tempfile.TemporaryDirectory(prefix="ol-") as directory:
        yield Path(directory) / "agent.sock"


def test_packets_keep_their_borders(pair: tuple[Channel, Channel]) -> None:
    """Each send is one receive, in order."""
    one, other = pair
    for number in range(5):
        one.send(Accepted(number=number))
    assert [other.receive(1).message for _ in range(5)] == [Accepted(number=n) for n in range(5)]


def test_descriptors_travel(pair: tuple[Channel, Channel]) -> None:
    """A descriptor arrives as another descriptor of the same file, not inherited by programs."""
    one, other = pair
    reading, writing = os.pipe()
    one.send(ArenaOffer(arena=0, bytes=1), [writing])
    os.close(writing)
    (arrived,) = other.receive(1).fds
    assert not os.get_inheritable(arrived)
    os.write(arrived, b"x")
    os.close(arrived)
    assert os.read(reading, 2) == b"x"
    os.close(reading)


def test_end_of_file(pair: tuple[Channel, Channel]) -> None:
    """Both directions tell that the other side has gone; what it said before is still read."""
    one, other = pair
    one.send(Fresh())
    one.close()
    assert other.receive(1).message == Fresh()
    with pytest.raises(EOFError):
        other.receive(1)
    with pytest.raises(EOFError):
        other.send(Fresh())


def test_last_words_of_a_side_that_did_not_listen(pair: tuple[Channel, Channel]) -> None:
    """What a side said before it hung up is heard, although it left unread what we had sent."""
    one, other = pair
    one.send(Fresh())
    other.send(Refused(message="no"))
    other.close()
    assert one.receive(1).message == Refused(message="no")
    with pytest.raises(EOFError):
        one.receive(1)


def test_silence(pair: tuple[Channel, Channel]) -> None:
    """A wait ends at its deadline."""
    with pytest.raises(TimeoutError):
        pair[0].receive(0)


def test_a_peer_that_does_not_read(pair: tuple[Channel, Channel]) -> None:
    """A full buffer does not block the sender for longer than it allows."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 10_000:
            pair[0].send(Refused(message="x" * 20_000), timeout=0)
            sent += 1
    assert 0 < sent < 10_000


def test_close_wakes_a_receiver(pair: tuple[Channel, Channel]) -> None:
    """A thread that waits for the other side ends when its own side is closed."""
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(EOFError):
            pair[0].receive()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    pair[0].close()
    thread.join(10)
    assert ended.is_set()


def test_hostile_packets() -> None:
    """Rubbish, too long packets and too many descriptors are refused, and no descriptor leaks."""
    raw, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(theirs)
    before = len(list(Path("/proc/self/fd").iterdir()))
    raw.send(b"rubbish")
    raw.send(b" " * (MAX_PACKET_BYTES + 2))
    socket.send_fds(raw, [b"rubbish"], [0, 0])
    socket.send_fds(raw, [b'{"packet":"fresh"}'], [0] * (MAX_FDS + 3))
    for _ in range(4):
        with pytest.raises(ProtocolError):
            channel.receive(1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    channel.close()
    raw.close()


def test_listener(path: Path) -> None:
    """A peer of our own user is let in, and known by its process."""
    listener = Listener(path, uids={os.getuid()})
    client = connect(path)
    server = listener.accept()
    assert server.peer.pid == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o600
    client.send(Fresh())
    assert server.receive(1).message == Fresh()
    for end in (client, server, listener):
        end.close()
    assert not path.exists()


def test_strangers_are_shut_out(path: Path) -> None:
    """A peer of another user id is refused before a word is said."""
    listener = Listener(path, uids={os.getuid() + 1})
    client = connect(path)
    with pytest.raises(ProtocolError, match="may not connect"):
        listener.accept()
    with pytest.raises(EOFError):
        client.receive(1)
    client.close()
    listener.close()


def test_stale_and_living_sockets(path: Path) -> None:
    """A dead agent's socket is replaced, a living one's is not."""
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dead.bind(str(path))
    dead.close()
    listener = Listener(path, uids={os.getuid()})
    with pytest.raises(ProtocolError, match="another agent"):
        Listener(path, uids={os.getuid()})
    listener.close()


def test_long_paths(tmp_path: Path) -> None:
    """A path that the kernel would cut is refused with what to do."""
    with pytest.raises(ProtocolError) as caught:
        Listener(tmp_path / ("x" * 120), uids=set())
    assert "XDG_RUNTIME_DIR" in caught.value.hint
