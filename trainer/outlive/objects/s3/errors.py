"""What a server's answer, or the lack of one, means: every error of botocore becomes one of ours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from botocore import exceptions as theirs

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

_KEYS = "check the access key, the secret key and what they are allowed to do"
_LOAD = "the store is overloaded or has a fault; it is tried again"
_NETWORK = "check the network and the endpoint"
_CLOCK = "set this machine's clock (chrony, systemd-timesyncd)"
_REPORT = "this looks like a fault in outlive or an unusual server; please report it"


@dataclass(frozen=True, slots=True)
class _Meaning:
    kind: type[StoreError]
    hint: str


_DENIED = _Meaning(Denied, _KEYS)
_BUSY = _Meaning(Unavailable, _LOAD)
_TOO_FAST = _Meaning(Throttled, _LOAD)
_FULL = _Meaning(StoreFull, "delete something there, raise the quota, or choose another store")

_CODES: Mapping[str, _Meaning] = {
    "NoSuchKey": _Meaning(NotFound, ""),
    "NotFound": _Meaning(NotFound, ""),
    "NoSuchBucket": _Meaning(NoBucket, "create the bucket, or correct its name or region"),
    "PermanentRedirect": _Meaning(
        NoBucket, "the bucket is in another region: correct the endpoint or region"
    ),
    "AuthorizationHeaderMalformed": _Meaning(Denied, "the region is wrong: set the bucket's own"),
    "ExpiredToken": _Meaning(Denied, "the credentials have expired: renew them and start again"),
    "RequestTimeTooSkewed": _Meaning(Unavailable, _CLOCK),
    "PreconditionFailed": _Meaning(AlreadyExists, ""),
    # Another writer is busy with the same key right now. Whether it will exist is known only afterwards.
    "ConditionalRequestConflict": _Meaning(Unavailable, _LOAD),
    "OperationAborted": _Meaning(Unavailable, _LOAD),
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
    "StorageFull": _FULL,
    "InsufficientStorage": _FULL,
    # These come with status 400 but mean that bytes were lost or broken on the way.
    "BadDigest": _BUSY,
    "IncompleteBody": _BUSY,
    "RequestTimeout": _BUSY,
    "XAmzContentSHA256Mismatch": _BUSY,
    "SlowDown": _TOO_FAST,
    "NotImplemented": _Meaning(StoreError, "this store lacks a feature of S3; choose another one"),
    "MissingContentLength": _Meaning(StoreError, _REPORT),
    "EntityTooLarge": _Meaning(StoreError, "this store takes only smaller objects"),
}

_ELSEWHERE = (_CODES["PermanentRedirect"], _CODES["AuthorizationHeaderMalformed"])

_STATUSES: Mapping[int, _Meaning] = {
    401: _DENIED,
    403: _DENIED,
    404: _CODES["NotFound"],
    408: _BUSY,
    409: _CODES["PreconditionFailed"],
    412: _CODES["PreconditionFailed"],
    425: _BUSY,
    429: _TOO_FAST,
    503: _TOO_FAST,
    507: _FULL,
}

_KINDS: tuple[tuple[type[Exception], _Meaning], ...] = (
    (
        theirs.SSLError,
        _Meaning(Unavailable, "check the endpoint's certificate; for one of your own, name its CA bundle"),
    ),
    (theirs.ProxyConnectionError, _Meaning(Unavailable, "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY")),
    (theirs.ConnectionError, _Meaning(Unavailable, _NETWORK)),
    (theirs.HTTPClientError, _Meaning(Unavailable, _NETWORK)),
    (theirs.ChecksumError, _BUSY),
    (theirs.FlexibleChecksumError, _BUSY),
    (theirs.IncompleteReadError, _BUSY),
    (
        theirs.NoCredentialsError,
        _Meaning(Denied, "set OUTLIVE_S3_ACCESS_KEY_ID and OUTLIVE_S3_SECRET_ACCESS_KEY"),
    ),
    (theirs.PartialCredentialsError, _DENIED),
    (theirs.UnknownCredentialError, _DENIED),
    (theirs.ProfileNotFound, _Meaning(Denied, "correct AWS_PROFILE or ~/.aws/config")),
    (theirs.RefreshWithMFAUnsupportedError, _DENIED),
    (theirs.NoAuthTokenError, _DENIED),
    (theirs.SSOError, _Meaning(Denied, "log in again: aws sso login")),
    (theirs.LoginError, _Meaning(Denied, "log in again: aws login")),
    # Credentials from a metadata service or a program: a passing fault of theirs must not end a run.
    (theirs.MetadataRetrievalError, _Meaning(Unavailable, _KEYS)),
    (theirs.CredentialRetrievalError, _Meaning(Unavailable, _KEYS)),
    (theirs.TokenRetrievalError, _Meaning(Unavailable, _KEYS)),
    (theirs.CapacityNotAvailableError, _BUSY),
    (
        theirs.EndpointProviderError,
        _Meaning(StoreError, "check the endpoint, the region and the bucket's name"),
    ),
    (theirs.BaseEndpointResolverError, _Meaning(StoreError, "set a region")),
    (theirs.InvalidConfigError, _Meaning(StoreError, "check ~/.aws/config and AWS_* of this machine")),
    (theirs.ConfigParseError, _Meaning(StoreError, "check ~/.aws/config")),
    (theirs.ConfigNotFound, _Meaning(StoreError, "check AWS_CONFIG_FILE")),
    (
        theirs.ValidationError,
        _Meaning(StoreError, "check the region, the bucket's name and AWS_* of this machine"),
    ),
)


def translated(error: Exception, location: str, key: str) -> OutliveError:
    """One of our errors that names the store, the key and what to do. Our own pass through."""
    if isinstance(error, OutliveError):
        return error
    where = f"{location}: {key}" if key else location
    if isinstance(error, theirs.ClientError):
        return _refused(error, where)
    for kind, meaning in _KINDS:
        if isinstance(error, kind):
            return meaning.kind(f"{where}: {_text(error)}", hint=meaning.hint)
    return StoreError(f"{where}: {type(error).__name__}: {_text(error)}", hint=_REPORT)


def refusal(code: str, message: str, where: str) -> StoreError:
    """One key's error inside an answer that was 200 as a whole."""
    meaning = _CODES.get(code) or _named_after(code) or _Meaning(StoreError, _REPORT)
    return meaning.kind(f"{where}: {_said(code, message)}", hint=meaning.hint)


def lacks_feature(error: StoreError) -> bool:
    """Whether the server said that it can't do such a thing at all (501)."""
    cause = error.__cause__
    return (
        isinstance(cause, theirs.ClientError) and cause.response["ResponseMetadata"]["HTTPStatusCode"] == 501
    )


def server_time(headers: Mapping[str, str]) -> datetime | None:
    """The ``Date`` of an answer, in UTC."""
    try:
        stamp = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return None
    return stamp.replace(tzinfo=timezone.utc) if stamp.tzinfo is None else stamp.astimezone(timezone.utc)


def _refused(error: theirs.ClientError, where: str) -> StoreError:
    details = error.response.get("Error", {})
    answer = error.response.get("ResponseMetadata", {})
    status = int(answer.get("HTTPStatusCode", 0))
    code, message = str(details.get("Code") or ""), str(details.get("Message") or "")
    meaning = _CODES.get(code) or _STATUSES.get(status) or _by_status(status)
    said = f"{where}: {_said(code, message)}"
    if meaning.kind is AlreadyExists:
        return AlreadyExists(f"{where} exists already")
    if meaning.kind is NotFound:
        return NotFound(f"{where} does not exist")
    headers = answer.get("HTTPHeaders", {})
    if code == "RequestTimeTooSkewed":
        said += _skew(server_time(headers))
    region = str(details.get("Region") or headers.get("x-amz-bucket-region") or "")
    if meaning in _ELSEWHERE and re.fullmatch(r"[a-z0-9-]{1,40}", region):
        return meaning.kind(said, hint=f"the bucket is in {region}: set that region, and its endpoint")
    return meaning.kind(said, hint=meaning.hint)


def _by_status(status: int) -> _Meaning:
    if status >= 500:
        return _BUSY
    if 300 <= status < 400:
        return _CODES["PermanentRedirect"]
    return _Meaning(StoreError, _REPORT)


def _named_after(code: str) -> _Meaning | None:
    if code in ("ServiceUnavailable", "ServerBusy"):
        return _TOO_FAST
    if code == "InternalError":
        return _BUSY
    return _DENIED if code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch") else None


def _said(code: str, message: str) -> str:
    """A server's own words, on one line."""
    words = " ".join(message.split()).rstrip(".")
    return f"{words} ({code})" if words and words != code else f"the store says {code or 'nothing'}"


def _text(error: Exception) -> str:
    """Without full stop, and without the parameters that some of botocore's messages append line by line."""
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(lines[:2]).rstrip(".")[:500]


def _skew(server: datetime | None) -> str:
    if server is None:
        return ""
    minutes = (datetime.now(timezone.utc) - server).total_seconds() / 60
    return f"; this machine's clock is {abs(minutes):.0f} min {'ahead' if minutes > 0 else 'behind'}"
