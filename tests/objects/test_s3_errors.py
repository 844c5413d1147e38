"""Every error of the S3 library, and every refusal of a server, becomes one of ours."""

import inspect
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import botocore.exceptions
import pytest
from botocore.exceptions import ClientError

from outlive.errors import (
    AlreadyExists,
    Denied,
    NoBucket,
    NotFound,
    OutliveError,
    StoreError,
    StoreFull,
    Throttled,
    Unavailable,
)
from outlive.objects.s3.errors import refusal, translated

WHERE = ("s3://bucket/p", "run/a")


class Anything(dict[str, str]):
    """Fills every place of botocore's message templates."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def made(kind: type[Exception]) -> Exception:
    if issubclass(kind, ClientError):
        return kind(refused(500, "InternalError"), "PutObject")
    error = kind.__new__(kind)
    template = getattr(kind, "fmt", "no message")
    Exception.__init__(error, template.format_map(Anything()))
    return error


def refused(status: int, code: str, message: str = "Said so.", **headers: str) -> Any:
    return {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }


def all_errors() -> list[type[Exception]]:
    members = inspect.getmembers(botocore.exceptions, inspect.isclass)
    return [kind for _, kind in members if issubclass(kind, Exception) and not issubclass(kind, Warning)]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_botocore_is_ours(kind: type[Exception]) -> None:
    """Each class that botocore has becomes one of ours, with the store, the key and a hint in it."""
    error = translated(made(kind), *WHERE)
    assert isinstance(error, StoreError)
    assert str(error).startswith("s3://bucket/p: run/a")
    assert error.hint
    assert "\n" not in str(error)
    assert not str(error).endswith(".")


TRANSIENT = {
    "ConnectionError", "EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError",
    "HTTPClientError", "ReadTimeoutError", "ConnectionClosedError", "ResponseStreamingError",
    "IncompleteReadError", "ChecksumError", "FlexibleChecksumError", "MetadataRetrievalError",
    "CredentialRetrievalError", "TokenRetrievalError", "CapacityNotAvailableError",
    "ClientError", "EventStreamError",  # made with status 500 here
}  # fmt: skip


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_only_what_may_pass_is_tried_again(kind: type[Exception]) -> None:
    """A network that fails may recover; a wrong setting or a missing key never does."""
    assert isinstance(translated(made(kind), *WHERE), Unavailable) == (kind.__name__ in TRANSIENT)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", Denied),
        (403, "InvalidAccessKeyId", Denied),
        (403, "SignatureDoesNotMatch", Denied),
        (401, "Unauthorized", Denied),
        (400, "ExpiredToken", Denied),
        (400, "AuthorizationHeaderMalformed", Denied),
        (403, "RequestTimeTooSkewed", Unavailable),
        (403, "QuotaExceeded", StoreFull),
        (507, "XMinioStorageFull", StoreFull),
        (404, "NoSuchKey", NotFound),
        (404, "404", NotFound),
        (404, "NoSuchBucket", NoBucket),
        (301, "PermanentRedirect", NoBucket),
        (307, "", NoBucket),
        (412, "PreconditionFailed", AlreadyExists),
        (409, "Conflict", AlreadyExists),
        (409, "ConditionalRequestConflict", Unavailable),
        (409, "OperationAborted", Unavailable),
        (411, "MissingContentLength", StoreError),
        (400, "InvalidRequest", StoreError),
        (400, "EntityTooLarge", StoreError),
        (400, "BadDigest", Unavailable),
        (400, "XAmzContentSHA256Mismatch", Unavailable),
        (400, "RequestTimeout", Unavailable),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", Unavailable),
        (501, "NotImplemented", StoreError),
        (502, "", Unavailable),
        (503, "SlowDown", Throttled),
        (503, "", Throttled),
        (504, "", Unavailable),
    ],
)
def test_what_a_refusal_means(status: int, code: str, kind: type[StoreError]) -> None:
    """403 is not 404, full is not forbidden, and overload is not for ever."""
    error = translated(ClientError(refused(status, code), "PutObject"), *WHERE)
    assert type(error) is kind
    assert str(error).startswith("s3://bucket/p: run/a")


def test_the_servers_words_are_kept() -> None:
    """What the store says appears on the one line, with its code."""
    error = translated(ClientError(refused(403, "AccessDenied", "No\n way."), "PutObject"), *WHERE)
    assert str(error) == "s3://bucket/p: run/a: No way (AccessDenied)"
    assert "secret key" in error.hint


def test_a_wrong_clock_is_named() -> None:
    """A machine whose clock is off learns by how much: the store's text blames the request."""
    server = datetime.now(timezone.utc) - timedelta(minutes=90)
    response = refused(403, "RequestTimeTooSkewed", "skewed", date=format_datetime(server))
    error = translated(ClientError(response, "PutObject"), *WHERE)
    assert "this machine's clock is 90 min ahead" in str(error)
    assert "clock" in error.hint


def test_our_own_errors_pass() -> None:
    """What is ours already stays as it is."""
    error: OutliveError = NotFound("x")
    assert translated(error, *WHERE) is error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDenied", Denied),
        ("InternalError", Unavailable),
        ("SlowDown", Throttled),
        ("Odd", StoreError),
    ],
)
def test_one_keys_refusal(code: str, kind: type[StoreError]) -> None:
    """A key's error inside an answer of 200 means the same as on its own."""
    assert type(refusal(code, "words", "s3://b: k")) is kind
