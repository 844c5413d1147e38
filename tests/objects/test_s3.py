"""How the S3 store behaves with servers that are slow, silent, odd or full of faults."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import certifi
import pytest

from fakes.scripted import Answer, Request, Scripted, error, scripted
from fakes.servers import shared
from outlive.errors import (
    AlreadyExists,
    Damaged,
    Denied,
    NoBucket,
    NotFound,
    OutliveError,
    StoreError,
    Unavailable,
)
from outlive.objects.credentials import Credentials
from outlive.objects.presets import Endpoint
from outlive.objects.probe import probe
from outlive.objects.retry import Backoff, Retrying
from outlive.objects.s3 import Patience, S3Store

MIB = 1024 * 1024
IMPATIENT = Patience(connect_seconds=2, stall_seconds=0.4, answer_seconds=0.4)
KEYS = Credentials(access_key="AKTEST", secret_key="SKTEST")  # noqa: S106


def store_at(endpoint: str, *, patience: Patience | None = None, create_only: bool | None = None) -> S3Store:
    return S3Store(
        Endpoint(url=endpoint, signing_region="us-east-1"),
        bucket="bucket",
        prefix="p",
        credentials=KEYS,
        create_only=create_only,
        patience=patience,
    )


@contextmanager
def talking_to(
    answer: Callable[[Request], Answer], *, patience: Patience | None = None
) -> Iterator[tuple[S3Store, Scripted]]:
    with scripted(answer) as server:
        store = store_at(server.endpoint, patience=patience)
        try:
            yield store, server
        finally:
            store.close()


def listing(*keys: str, more: bool = False) -> Answer:
    items = "".join(
        f"<Contents><Key>p/{key}</Key><Size>1</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
    )
    xml = (
        f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{items}</ListBucketResult>".encode()
    )
    return Answer(pieces=[xml], length=len(xml))


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


def test_a_broken_off_answer_may_be_tried_again() -> None:
    """A connection that ends early is the network's fault, not damage to the object."""
    body = secrets.token_bytes(MIB)
    answers = [Answer(length=MIB, pieces=[body[:1000]]), Answer(length=MIB, pieces=[body])]
    buffer = bytearray(MIB)
    with talking_to(lambda _: answers.pop(0)) as (store, _):
        retrying = Retrying(store, backoff=Backoff(first_seconds=0))
        retrying.read_into("a", memoryview(buffer))
    assert bytes(buffer) == body


def test_nobody_there() -> None:
    """A refused connection and an unknown host are Unavailable and say where."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for endpoint in (f"http://127.0.0.1:{port}", "http://nowhere.invalid"):
        store = store_at(endpoint)
        with pytest.raises(Unavailable, match=endpoint) as caught:
            store.put("a", b"")
        assert "endpoint" in caught.value.hint


def test_a_stranger_certificate_is_refused() -> None:
    """Without the CA bundle of a private server nothing is sent, and the hint names the bundle."""
    rgw = shared("rgw")
    store = S3Store(
        Endpoint(url=rgw.endpoint, signing_region="us-east-1"),
        bucket=rgw.bucket,
        credentials=KEYS,
        ca_bundle=certifi.where(),
    )
    with pytest.raises(Unavailable, match="certificate verify failed") as caught:
        store.put("a", b"")
    assert "CA bundle" in caught.value.hint
    store.close()


def every_call(store: S3Store) -> list[Callable[[], object]]:
    return [
        lambda: store.put("a", b""),
        lambda: store.put("a", bytes(2 * MIB)),
        lambda: store.get("a", at_most=1),
        lambda: list(store.list("")),
        lambda: store.delete(["a"]),
        lambda: store.delete(["a", "b"]),
        lambda: store.now(),
    ]


def test_wrong_keys_and_a_missing_bucket() -> None:
    """On a real Ceph: a wrong secret is Denied, a missing bucket NoBucket, for every kind of call."""
    rgw = shared("rgw")
    endpoint = Endpoint(url=rgw.endpoint, signing_region="us-east-1")
    right = Credentials(access_key=rgw.access_key, secret_key=rgw.secret_key)
    wrong = S3Store(endpoint, bucket=rgw.bucket, credentials=KEYS, ca_bundle=rgw.ca_bundle)
    nowhere = S3Store(endpoint, bucket="no-such-bucket", credentials=right, ca_bundle=rgw.ca_bundle)
    for store, kind in ((wrong, Denied), (nowhere, NoBucket)):
        for call in every_call(store):
            with pytest.raises(kind) as caught:
                call()
            assert caught.value.hint
        store.close()


def test_bulk_is_unsigned_and_the_rest_signed() -> None:
    """Over TLS the signature leaves bulk bodies out, which saves most of the work; small ones stay signed."""
    rgw = shared("rgw")
    store = S3Store(
        Endpoint(url=rgw.endpoint, signing_region="us-east-1"),
        bucket=rgw.bucket,
        prefix=secrets.token_hex(4),
        credentials=Credentials(access_key=rgw.access_key, secret_key=rgw.secret_key),
        ca_bundle=rgw.ca_bundle,
    )
    hashes: list[str] = []

    def see(request: object, **_: object) -> None:
        value = request.headers["X-Amz-Content-SHA256"]  # type: ignore[attr-defined]
        hashes.append(value.decode() if isinstance(value, bytes) else value)

    store._client.meta.events.register_first("before-send.s3", see)
    store.put("bulk", bytes(MIB))
    store.put("small", bytes(MIB - 1))
    store.put("claim", b"x", create_only=True)
    assert hashes[0] == "UNSIGNED-PAYLOAD"
    assert all(len(value) == 64 for value in hashes[1:])
    store.close()


def test_only_bulk_asks_before_it_sends() -> None:
    """A refusal comes before a large body is sent; a small one saves the round trip that asking costs."""
    with talking_to(lambda _: Answer()) as (store, server):
        store.put("small", bytes(MIB - 1))
        store.put("bulk", bytes(MIB))
    assert [request.headers.get("expect") for request in server.requests] == [None, "100-continue"]


def test_a_store_that_wants_signatures_gets_them() -> None:
    """The first refusal of an unsigned body falls back to a signed one, which is remembered."""
    seen: list[bool] = []

    class Fussy(S3Store):
        def _put(self, key: str, body: object, *, create_only: bool) -> None:
            signed = body.signed  # type: ignore[attr-defined]
            seen.append(signed)
            if not signed:
                raise StoreError("sign it")

    store = Fussy(Endpoint(url="https://host.invalid", signing_region="x"), bucket="bucket", credentials=KEYS)
    for _ in range(3):
        store.put("a", bytes(MIB))
    assert seen == [False, True, True, True]


def test_once_accepted_a_refusal_is_a_refusal() -> None:
    """A store that took an unsigned body once isn't sent everything twice when it refuses something else."""
    seen: list[bool] = []

    class Later(S3Store):
        def _put(self, key: str, body: object, *, create_only: bool) -> None:
            seen.append(body.signed)  # type: ignore[attr-defined]
            if len(seen) > 1:
                raise Denied("expired")

    store = Later(Endpoint(url="https://host.invalid", signing_region="x"), bucket="bucket", credentials=KEYS)
    store.put("a", bytes(MIB))
    with pytest.raises(Denied):
        store.put("a", bytes(MIB))
    assert seen == [False, False]


def test_a_store_without_batch_deletion() -> None:
    """Where DeleteObjects isn't known, keys are deleted one by one, and the next time at once so."""

    def answer(request: Request) -> Answer:
        return error(501, "NotImplemented") if request.method == "POST" else Answer(status=204)

    with talking_to(answer) as (store, server):
        store.delete(["a", "b"])
        store.delete(["c", "d"])
    assert [(r.method, r.path) for r in server.requests] == [
        ("POST", "/bucket"),
        *(("DELETE", f"/bucket/p/{key}") for key in "abcd"),
    ]


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDenied", Denied), ("InternalError", Unavailable), ("NoSuchKey", None)]
)
def test_a_key_that_could_not_be_deleted_is_named(code: str, kind: type[OutliveError] | None) -> None:
    """An error inside a successful answer is one; that a key was gone already is none."""
    xml = (
        f"<DeleteResult><Error><Key>p/b</Key><Code>{code}</Code><Message>no</Message></Error></DeleteResult>"
    )
    answer = Answer(pieces=[xml.encode()], length=len(xml))
    with talking_to(lambda _: answer) as (store, _):
        if kind is None:
            store.delete(["a", "b"])
            return
        with pytest.raises(kind, match="s3://bucket/p: b could not be removed: no"):
            store.delete(["a", "b"])


def test_a_listing_that_stands_still_is_no_endless_loop() -> None:
    """A server that repeats its first page for ever is found out."""
    with (
        talking_to(lambda _: listing("a", "b", more=True)) as (store, server),
        pytest.raises(StoreError, match="stands still at 'b'"),
    ):
        list(store.list(""))
    assert [request.query.get("start-after") for request in server.requests] == [None, "p/b"]


def test_a_listing_is_put_in_order() -> None:
    """Repeated, unsorted and folder keys of odd servers come out once each, in order, without folders."""
    pages = [listing("b", "a", "a", "c/", more=True), listing("a", "d", "c/x")]
    with talking_to(lambda _: pages.pop(0)) as (store, _):
        assert [info.key for info in store.list("")] == ["a", "b", "c/x", "d"]


def test_create_only_where_the_store_refuses_the_question() -> None:
    """With a server that answers 501 to If-None-Match the probe finds it, and puts work without it."""
    objects: dict[str, bytes] = {}
    lock = threading.Lock()

    def answer(request: Request) -> Answer:
        with lock:
            if "if-none-match" in request.headers:
                return error(501, "NotImplemented")
            if request.method == "PUT":
                objects[request.path] = request.body
            if request.method in ("HEAD", "GET") and request.path not in objects:
                return listing() if "list-type" in request.query else error(404, "NoSuchKey")
            return Answer()

    with talking_to(answer) as (store, _):
        found = probe(store)
        assert found.create_only is False
        assert store.limits.create_only is False
        store.put("a", b"mine", create_only=True)
        with pytest.raises(AlreadyExists):
            store.put("a", b"theirs", create_only=True)
    assert objects["/bucket/p/a"] == b"mine"


def test_a_conflict_among_writers_is_settled_by_trying_again() -> None:
    """409 ConditionalRequestConflict doesn't say that the object exists: the next attempt does."""
    answers = [error(409, "ConditionalRequestConflict"), error(412, "PreconditionFailed")]
    with talking_to(lambda _: answers.pop(0)) as (store, _):
        retrying = Retrying(store, backoff=Backoff(first_seconds=0))
        with pytest.raises(AlreadyExists):
            retrying.put("lives/1", b"nonce", create_only=True)


def test_an_object_without_length_is_still_measured() -> None:
    """A whole object is compared with what the caller allows, also where the server hides its size."""
    with talking_to(lambda _: Answer(length=5, pieces=[b"12345"])) as (store, _):
        with pytest.raises(Damaged):
            store.get("a", at_most=4)
        with pytest.raises(Damaged):
            store.read_into("a", memoryview(bytearray(6)))


def test_rubbish_is_no_answer() -> None:
    """A captive portal's page is not taken for an object listing or for success."""
    page = b"<html>please log in"
    with (
        talking_to(lambda _: Answer(pieces=[page], length=len(page))) as (store, _),
        pytest.raises(StoreError),
    ):
        list(store.list(""))


def test_the_time_is_the_servers() -> None:
    """The clock is the Date of an answer; without one there is no guessing."""
    with talking_to(lambda _: listing()) as (store, _):
        assert store.now().tzinfo is not None


def test_not_found_is_told_from_no_bucket() -> None:
    """404 with NoSuchKey concerns the key, with NoSuchBucket the store."""
    answers = [error(404, "NoSuchKey"), error(404, "NoSuchBucket")]
    with talking_to(lambda _: answers.pop(0)) as (store, _):
        with pytest.raises(NotFound, match="p: a does not exist"):
            store.get("a", at_most=1)
        with pytest.raises(NoBucket):
            store.get("a", at_most=1)
