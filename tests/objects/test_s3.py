"""How the S3 store behaves with servers that are odd or full of faults."""

import secrets
import socket
import threading
from collections.abc import Callable

import certifi
import pytest

from fakes.scripted import Answer, Request, error
from fakes.servers import shared
from objects.talking import KEYS, MIB, listing, store_at, talking_to
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
from outlive.objects.s3 import S3Store


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
