"""The stores that the contract is checked on."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from fakes.servers import Kind, Server, shared
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.local import LocalStore
from outlive.objects.memory import MemoryStore
from outlive.objects.presets import Endpoint
from outlive.objects.retry import Retrying
from outlive.objects.s3 import S3Store
from outlive.objects.sealed import Encryption, Sealed, Signature

STORES = (
    *("memory", "encrypted", "signed", "local"),
    *("moto", "ministack", "rclone", "swift", "rgw"),
)


def s3_store(server: Server, *, prefix: str | None = None) -> S3Store:
    return S3Store(
        Endpoint(url=server.endpoint, signing_region="us-east-1"),
        bucket=server.bucket,
        prefix=secrets.token_hex(6) if prefix is None else prefix,
        credentials=Credentials(access_key=server.access_key, secret_key=server.secret_key),
        ca_bundle=server.ca_bundle,
        create_only=server.create_only,
    )


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty one of each kind."""
    if request.param == "memory":
        yield MemoryStore()
    elif request.param in ("encrypted", "signed"):
        key = b"k" * 32
        yield Sealed(MemoryStore(), Encryption(key) if request.param == "encrypted" else Signature(key))
    elif request.param == "local":
        yield LocalStore(tmp_path / "store")
    else:
        bucket = s3_store(shared(cast("Kind", request.param)))
        yield Retrying(bucket)  # rclone stumbles over writers at the same moment
        bucket.close()


@pytest.fixture(params=("moto", "rgw"))
def bucket(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """An empty S3 store, without and with TLS."""
    made = s3_store(shared(cast("Kind", request.param)))
    yield made
    made.close()
