"""A server that is slow is waited for; one that is silent is given up."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fakes.scripted import Answer, Request, scripted
from objects.talking import IMPATIENT, MIB, store_at, talking_to
from outlive.errors import (
    Unavailable,
)


def test_a_trickle_is_cut_off() -> None:
    """A GET that gives a byte now and then never times out by itself: it is ended and may be tried again."""
    with scripted(lambda _: Answer(length=MIB, pieces=drip())) as server:
        leaving = server.leaving

        def drip() -> Iterator[bytes]:
            while not leaving.wait(0.05):
                yield b"x"

        store = store_at(server.endpoint, patience=IMPATIENT)
        with pytest.raises(Unavailable, match=r"a: almost nothing moved for 0.4 s"):
            store.read_into("a", memoryview(bytearray(MIB)))
        store.close()


def test_a_trickling_answer_is_cut_off() -> None:
    """The same holds for a listing, which is read before anyone sees it."""
    with scripted(lambda _: Answer(length=10_000, pieces=drip())) as server:
        leaving = server.leaving

        def drip() -> Iterator[bytes]:
            while not leaving.wait(0.05):
                yield b" "

        store = store_at(server.endpoint, patience=IMPATIENT)
        with pytest.raises(Unavailable, match="almost nothing moved"):
            list(store.list(""))
        store.close()


@pytest.mark.parametrize("size", [10, 3 * MIB])
def test_a_silent_server_is_given_up(size: int) -> None:
    """A full Ceph takes a PUT and never answers: after the patience for an answer it is Unavailable."""
    released = threading.Event()

    def silent(_: Request) -> Answer:
        released.wait(30)
        return Answer()

    with talking_to(silent, patience=IMPATIENT) as (store, _):
        with pytest.raises(Unavailable, match=r"a: no answer for 0.4 s"):
            store.put("a", bytes(size))
        released.set()


def test_a_server_that_stops_reading_is_given_up() -> None:
    """A peer that accepts a connection and reads nothing doesn't hold a big upload for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = store_at(f"http://127.0.0.1:{server.getsockname()[1]}", patience=IMPATIENT)
        with pytest.raises(Unavailable, match=r"almost nothing moved|no answer"):
            store.put("a", bytes(32 * MIB))
        store.close()


def test_a_slow_but_living_server_is_waited_for() -> None:
    """What keeps moving may take as long as it needs."""
    piece = bytes(20_000)

    with scripted(lambda _: Answer(length=len(piece) * 30, pieces=slowly())) as server:
        leaving = server.leaving

        def slowly() -> Iterator[bytes]:
            for _ in range(30):
                leaving.wait(0.05)  # 1.5 s in all, against a patience of 0.4 s
                yield piece

        store = store_at(server.endpoint, patience=IMPATIENT)
        store.read_into("a", memoryview(bytearray(len(piece) * 30)))
        store.close()


def test_a_slow_uplink_is_waited_for() -> None:
    """What the kernel took at once but the server gets slowly still moves, long after the last send."""
    size = MIB - 1

    def drain(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            got = b""
            while b"\r\n\r\n" not in got:
                got += peer.recv(4096)
            rest = size - len(got.partition(b"\r\n\r\n")[2])
            while rest:
                threading.Event().wait(0.05)  # 1.5 s and more in all
                piece = peer.recv(min(rest, 32_768))
                if not piece:
                    return
                rest -= len(piece)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        thread = threading.Thread(target=drain, args=(server,))
        thread.start()
        store = store_at(f"http://127.0.0.1:{server.getsockname()[1]}", patience=IMPATIENT)
        try:
            store.put("a", bytes(size))
        finally:
            store.close()
            thread.join()
