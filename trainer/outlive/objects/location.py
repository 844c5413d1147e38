"""From what a user writes to a store that is ready: ``open_store``."""

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from outlive.errors import ConfigError, StoreError
from outlive.objects.credentials import Credentials, find_credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.keys import check_key
from outlive.objects.local import LocalStore
from outlive.objects.presets import Endpoint, is_cdn, known_host
from outlive.objects.retry import Retry, Retrying

_FORMS = "write /path, ./path, ~/path, file:///path, s3://bucket/prefix or https://host/bucket/prefix"
_ENDPOINTS = ("OUTLIVE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("OUTLIVE_S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Where a store in a bucket is, before anything is opened."""

    endpoint: Endpoint
    bucket: str
    prefix: str


def open_store(
    location: str,
    *,
    credentials: Credentials | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    ca_bundle: str | None = None,
    create_only: bool | None = None,
    on_retry: Callable[[Retry], None] | None = None,
    closing: threading.Event | None = None,
) -> ObjectStore:
    """The store at ``location``, trying again by itself. Nothing is contacted yet.

    ``ConfigError`` if the location makes no sense, or a file stands there. ``endpoint`` comes before
    OUTLIVE_S3_ENDPOINT, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL; ``region`` before OUTLIVE_S3_REGION,
    AWS_REGION and AWS_DEFAULT_REGION.
    ``create_only`` is what :func:`outlive.objects.probe.probe` found, where that is known already.
    ``ca_bundle``: for a server with a certificate of one's own (AWS_CA_BUNDLE does the same).
    """
    parsed = parse_location(location, endpoint=endpoint, region=region, environ=os.environ)
    store: ObjectStore
    if isinstance(parsed, Path):
        _check_directory(parsed)
        store = LocalStore(parsed)
    else:
        from outlive.objects.s3 import S3Store  # late: a local store needs no boto3

        store = S3Store(
            parsed.endpoint,
            bucket=parsed.bucket,
            prefix=parsed.prefix,
            credentials=find_credentials(credentials, os.environ),
            ca_bundle=ca_bundle,
            create_only=create_only,
        )
    return Retrying(store, on_retry=on_retry, closing=closing)


def parse_location(
    location: str, *, endpoint: str | None, region: str | None, environ: Mapping[str, str]
) -> Path | Bucket:
    """The directory or the bucket that is meant. Pure."""
    if location.startswith(("/", "./", "../", "~")) or location in (".", ".."):
        return _directory(location)
    try:
        url = urlsplit(location)
        _ = url.port  # this is where a wrong one is noticed
    except ValueError as error:
        raise ConfigError(f"the store is no URL: {error}", hint=_FORMS) from error
    if url.username or url.password or url.query or url.fragment:
        raise ConfigError(
            f"the store's URL at {url.hostname or 'no host'} holds a user, a query or a fragment",
            hint="give keys by OUTLIVE_S3_ACCESS_KEY_ID and OUTLIVE_S3_SECRET_ACCESS_KEY instead",
        )
    if url.scheme == "file":
        if url.netloc not in ("", "localhost"):
            raise ConfigError(f"{location}: file:// names the host {url.netloc}", hint="write file:///path")
        return _directory(unquote(url.path))
    if url.scheme == "s3":
        given = endpoint or _first(environ, _ENDPOINTS)
        return _named_bucket(url, given, region or _first(environ, _REGIONS))
    if url.scheme in ("http", "https"):
        return _addressed_bucket(url, endpoint, region)
    raise ConfigError(f"{location!r} is not a store", hint=_hint(url.scheme))


def _directory(text: str) -> Path:
    if "\0" in text or not text.strip("/"):
        raise ConfigError(f"{text!r} can't be a store's directory", hint="name a directory of its own")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # no such user, or no home
        raise ConfigError(f"{text}: {error}", hint="write the whole path") from error


def _check_directory(path: Path) -> None:
    """A place where a file stands already can't become a directory, however often it is tried."""
    for part in (path, *path.parents):
        if os.path.lexists(part) and not part.is_dir():
            kind = "a file" if part.is_file() else "no directory"
            raise ConfigError(f"the store {path} can't be a directory: {part} is {kind}", hint=_FORMS)


def _named_bucket(url: SplitResult, given: str | None, region: str | None) -> Bucket:
    bucket = _bucket_name(url.netloc)
    prefix = _prefix(url.path)
    if given is None:
        region = region or "us-east-1"
        suffix = ".cn" if region.startswith("cn-") else ""
        given = f"https://s3.{region}.amazonaws.com{suffix}"
    try:
        where = urlsplit(given if "://" in given else f"https://{given}")
        _ = where.port  # this is where a wrong one is noticed
    except ValueError as error:
        raise ConfigError(f"the endpoint {given!r} is no URL: {error}", hint="write https://host") from error
    if where.scheme not in ("http", "https") or not where.hostname or where.path.strip("/"):
        raise ConfigError(f"the endpoint {given!r} is no server", hint="write https://host")
    found, inside = _endpoint(where, region)
    if inside not in (None, bucket):
        raise ConfigError(
            f"the endpoint {where.hostname} is that of the bucket {inside}, the store is in {bucket}",
            hint=f"write the endpoint without the bucket: {found.url}",
        )
    return Bucket(endpoint=found, bucket=bucket, prefix=prefix)


def _addressed_bucket(url: SplitResult, given: str | None, region: str | None) -> Bucket:
    if not url.hostname:
        raise ConfigError("the store's URL names no host", hint=_FORMS)
    found, bucket = _endpoint(url, region)
    if (
        given
        and urlsplit(given if "://" in given else f"https://{given}").hostname != urlsplit(found.url).hostname
    ):
        raise ConfigError(
            f"the store names the host {url.hostname}, the endpoint is {given}",
            hint="leave the endpoint away",
        )
    path = unquote(url.path).strip("/")
    if bucket is None:
        bucket, _, path = path.partition("/")
    if not bucket:
        raise ConfigError(f"{url.geturl()} names no bucket", hint=f"write {found.url}/bucket/prefix")
    return Bucket(endpoint=found, bucket=_bucket_name(bucket), prefix=_prefix(path))


def _endpoint(url: SplitResult, region: str | None) -> tuple[Endpoint, str | None]:
    """Where to send requests, and the bucket if the host's name begins with it."""
    host = url.hostname or ""
    if is_cdn(host):
        raise ConfigError(
            f"{host} is a CDN: it serves old copies and takes no writes",
            hint=f"write it without .cdn: {host.replace('.cdn.', '.')}",
        )
    known = known_host(host)
    shown = f"[{host}]" if ":" in host else host
    port = f":{url.port}" if url.port else ""
    if known is None:
        return Endpoint(url=f"{url.scheme}://{shown}{port}", signing_region=region or "us-east-1"), None
    preset = known.preset
    endpoint = Endpoint(
        url=f"{url.scheme}://{known.host}{port}",
        signing_region=preset.signing_region or known.region,
        virtual=preset.virtual,
        provider=preset.name,
    )
    if known.bucket and "." in known.bucket:  # no certificate covers bucket.with.dots.host
        endpoint = replace(endpoint, virtual=False)
    return endpoint, known.bucket


def _bucket_name(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a bucket", hint="write s3://bucket/prefix")
    return name


def _prefix(path: str) -> str:
    prefix = unquote(path).strip("/")
    if prefix:
        try:
            check_key(prefix)
        except StoreError as error:
            raise ConfigError(f"the store's prefix: {error}") from error
    return prefix


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _hint(scheme: str) -> str:
    if scheme in ("gs", "gcs"):
        return "use Google's S3 endpoint: https://storage.googleapis.com/bucket/prefix, with HMAC keys"
    if scheme == "":
        return "write ./ before a directory's name, or s3:// before a bucket's"
    return _FORMS
