"""A bucket, or a part of one, as an object store."""

import http.client
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from outlive.errors import AlreadyExists, Damaged, Denied, NoBucket, NotFound, StoreError, Unavailable
from outlive.objects.credentials import Credentials
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.keys import check_key, check_prefix
from outlive.objects.presets import Endpoint
from outlive.objects.s3.body import MemoryBody
from outlive.objects.s3.client import connect
from outlive.objects.s3.errors import lacks_feature, refusal, server_time, translated
from outlive.objects.s3.watchdog import Patience

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, ListObjectsV2OutputTypeDef

_SMALL_BYTES = 1024 * 1024
"""From here on a body counts as bulk: guarded by our own digest and by TLS, so not signed."""

_BATCH = 1000
_CONCURRENCY = 16


class S3Store:
    """``bucket/prefix`` at ``endpoint``. One attempt a call: trying again is ``Retrying``'s.

    ``create_only``: whether the bucket honours ``If-None-Match: *``. ``None`` = not known yet: it is used and
    declared until :meth:`assume` says otherwise. Where it isn't honoured, a create-only put first looks
    whether the key is taken, which holds against writers of the past, not against one at the same moment.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        bucket: str,
        prefix: str = "",
        credentials: Credentials | None = None,
        ca_bundle: str | None = None,
        create_only: bool | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._create_only = create_only is not False
        self._client, self._transport = connect(
            endpoint, credentials=credentials, ca_bundle=ca_bundle, patience=patience or Patience()
        )
        self._unsigned: bool | None = None if endpoint.url.startswith("https:") else False
        self._batches: bool | None = None

    def __repr__(self) -> str:
        return f"S3Store({self.location!r})"

    @property
    def location(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def limits(self) -> Limits:
        return Limits(create_only=self._create_only, concurrency=_CONCURRENCY)

    def assume(self, *, create_only: bool) -> None:
        """Take over what a probe has found."""
        self._create_only = create_only

    def close(self) -> None:
        """Give the connections back. The store stays usable."""
        self._transport.close()

    def cut(self) -> None:
        """End the requests that are under way: each fails with ``Unavailable``. New ones may follow."""
        self._transport.cut()

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        check_key(key)
        if create_only and self._create_only:
            try:
                self._send(key, body, create_only=True)
            except StoreError as error:
                if not lacks_feature(error):
                    raise
                self._create_only = False  # B2 answers so
            else:
                return
        if create_only:
            self._refuse_taken(key)
        self._send(key, body, create_only=False)

    def _send(self, key: str, body: Body, *, create_only: bool) -> None:
        if memoryview(body).nbytes < _SMALL_BYTES:
            self._put(key, bytes(body), create_only=create_only)
        else:
            self._put_bulk(key, body, create_only=create_only)

    def get(self, key: str, *, at_most: int) -> bytes:
        with self._reading(key) as (stream, size):
            if size is not None and size > at_most:
                raise Damaged(f"{self.location}: {key} has {size} bytes, more than {at_most}")
            held = bytearray(at_most + 1 if size is None else size)
            count = self._fill(stream, memoryview(held))
            if size is None and count > at_most:
                raise Damaged(f"{self.location}: {key} has more than {at_most} bytes")
            self._require_whole(key, count, size)
            return bytes(held if count == len(held) else held[:count])

    def read_into(self, key: str, buffer: memoryview) -> None:
        view = buffer.cast("B")
        with self._reading(key) as (stream, size):
            if size is not None and size != len(view):
                raise Damaged(f"{self.location}: {key} has {size} bytes instead of {len(view)}")
            count = self._fill(stream, view)
            self._require_whole(key, count, size)
            if count != len(view) or (size is None and stream.read(1)):
                raise Damaged(f"{self.location}: {key} does not have {len(view)} bytes")

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Pages by the last key seen: on some servers continuation tokens are missing or stand still."""
        check_prefix(prefix)
        seen = after
        while True:
            with self._naming(prefix):
                page = self._page(prefix, seen)
            start = seen
            for info in sorted(self._infos(page), key=lambda info: info.key):
                if info.key > seen:  # some servers repeat keys, or ignore where to start
                    seen = info.key
                    if not seen.endswith("/"):  # web consoles mark folders so
                        yield info
            if not page.get("IsTruncated"):
                return
            if seen == start:
                raise StoreError(
                    f"{self.location}: the listing of {prefix!r} stands still at {seen!r}",
                    hint="this server can't list more than one page; use another store",
                )

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for start in range(0, len(keys), _BATCH):
            self._delete(keys[start : start + _BATCH])

    def keeps_versions(self) -> bool | None:
        """Whether what is removed stays as an old version; None if this can't be asked."""
        try:
            with self._naming(""):
                answer = self._client.get_bucket_versioning(Bucket=self._bucket)
        except Unavailable:
            raise
        except StoreError:  # few keys may ask, and some servers don't know the question
            return None
        return answer.get("Status") == "Enabled"

    def now(self) -> datetime:
        with self._naming(""):
            page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        time = server_time(page["ResponseMetadata"]["HTTPHeaders"])
        if time is None:
            raise StoreError(f"{self.location}: the answer has no Date", hint="is a proxy removing headers?")
        return time

    def _put(self, key: str, body: "bytes | MemoryBody", *, create_only: bool) -> None:
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        try:
            with self._naming(key):
                self._client.put_object(
                    Bucket=self._bucket, Key=self._prefix + key, Body=cast("Any", body), **condition
                )
        except AlreadyExists as error:
            if create_only:
                raise
            raise Unavailable(str(error), hint="another writer was busy with this key") from error
        except NotFound as error:
            raise NoBucket(f"{self.location}: there is no such bucket", hint="create it first") from error

    def _put_bulk(self, key: str, body: Body, *, create_only: bool) -> None:
        """Unsigned, if the store takes it. A refusal of an unsigned body counts only once it took one."""
        if self._unsigned is not False:
            try:
                self._put(key, MemoryBody(body, signed=False), create_only=create_only)
            except (Unavailable, AlreadyExists, NoBucket):
                raise
            except StoreError:
                if self._unsigned:
                    raise
            else:
                self._unsigned = True
                return
        self._put(key, MemoryBody(body, signed=True), create_only=create_only)
        self._unsigned = False

    def _refuse_taken(self, key: str) -> None:
        with self._naming(key):
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)
            except ClientError as error:
                if isinstance(translated(error, self.location, key), NotFound):
                    return
                raise
        raise AlreadyExists(f"{self.location}: {key} exists already")

    @contextmanager
    def _reading(self, key: str) -> "Iterator[tuple[StreamingBody, int | None]]":
        check_key(key)
        with self._naming(key):
            answer: GetObjectOutputTypeDef = self._client.get_object(
                Bucket=self._bucket, Key=self._prefix + key
            )
            with closing(answer["Body"]):
                yield answer["Body"], answer.get("ContentLength")

    def _fill(self, stream: "StreamingBody", view: memoryview) -> int:
        done = 0
        while done < len(view):
            count = stream.readinto(view[done:])  # type: ignore[arg-type]  # the stub wants a bytearray
            if not count:
                break
            done += count
        return done

    def _require_whole(self, key: str, count: int, size: int | None) -> None:
        """The server announced more than it sent: the connection broke, the object may be sound."""
        if size is not None and count != size:
            raise Unavailable(f"{self.location}: {key} broke off after {count} of {size} bytes")

    def _page(self, prefix: str, seen: str) -> "ListObjectsV2OutputTypeDef":
        start: dict[str, Any] = {"StartAfter": self._prefix + seen} if seen >= prefix and seen else {}
        return self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, **start)

    def _infos(self, page: "ListObjectsV2OutputTypeDef") -> Iterator[ObjectInfo]:
        for item in page.get("Contents", []):
            key = item["Key"][len(self._prefix) :]
            yield ObjectInfo(key=key, size=item["Size"], modified=item["LastModified"])

    def _delete(self, keys: Sequence[str]) -> None:
        if len(keys) > 1 and self._batches is not False:
            try:
                self._delete_batch(keys)
            except (Unavailable, NoBucket, Denied):
                raise
            except StoreError:
                if self._batches:
                    raise
            else:
                self._batches = True
                return
        for key in keys:
            with self._naming(key):
                try:
                    self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)
                except ClientError as error:
                    if not isinstance(translated(error, self.location, key), NotFound):
                        raise
        if len(keys) > 1:
            self._batches = False

    def _delete_batch(self, keys: Sequence[str]) -> None:
        with self._naming(f"{keys[0]} and {len(keys) - 1} more"):
            answer = self._client.delete_objects(
                Bucket=self._bucket,
                Delete={"Objects": [{"Key": self._prefix + key} for key in keys], "Quiet": True},
            )
        failures = [e for e in answer.get("Errors", []) if e.get("Code") not in ("NoSuchKey", "NotFound")]
        if failures:
            first = failures[0]
            key = first.get("Key", "")[len(self._prefix) :]
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            where = f"{self.location}: {key}{more} could not be removed"
            raise refusal(first.get("Code", ""), first.get("Message", ""), where)

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise translated(error, self.location, key) from error
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            # What botocore lets through: an answer that is no XML, a header that is no number.
            raise Unavailable(f"{self.location}: {key}: the answer makes no sense: {error}") from error


def _conforms(store: S3Store) -> ObjectStore:
    return store
