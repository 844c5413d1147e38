"""A cloud of its own for each test, and in it a bucket and as many machines as the test asks for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.rig.bucket import Bucket, bucket_in
from e2e.rig.cloud import Cloud
from e2e.rig.machines import Machines
from e2e.scene import Scene


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A network of its own, with a metadata server."""
    with Cloud() as made:
        yield made


@pytest.fixture
def bucket(cloud: Cloud) -> Iterator[Bucket]:
    """A real S3 server, which guests find at `bucket.endpoint`."""
    with bucket_in(cloud) as made:
        yield made


@pytest.fixture
def machine(cloud: Cloud) -> Iterator[Machines]:
    """Boots machines from pasted user-data: `machine("#cloud-config ...")`. They go at the test's end."""
    with Machines(cloud) as made:
        yield made


@pytest.fixture
def scene(bucket: Bucket, machine: Machines, tmp_path: Path) -> Scene:
    """A run without a machine yet."""
    return Scene(bucket=bucket, machines=machine, folder=tmp_path)
