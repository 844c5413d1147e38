"""A real S3 server with one bucket: the test reaches it on this machine, guests reach it in the cloud."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from e2e.rig.cloud import ADDRESS, Cloud
from e2e.rig.forward import Forward
from fakes.servers import Kind, Server, s3_server, shared

PORT = 9000
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """`cable.cut()` is an outage as guests see it; the test still sees the bucket."""

    server: Server
    cable: Forward
    endpoint: str = f"http://{ADDRESS}:{PORT}"
    """Where guests find it."""


@contextmanager
def bucket_in(cloud: Cloud, kind: Kind = "moto", *, port: int = PORT) -> Iterator[Bucket]:
    """An empty bucket for as long as the block lasts. rclone is the one that checks who asks."""
    with _server(kind) as server:
        host, here = server.endpoint.removeprefix("http://").split(":")
        cable = cloud.publish(port, target=(host, int(here)))
        yield Bucket(server=server, cable=cable, endpoint=f"http://{ADDRESS}:{port}")
        cable.close()


@contextmanager
def _server(kind: Kind) -> Iterator[Server]:
    """One moto does for all tests, since starting one takes a second: each test has a bucket of its own."""
    if kind != "moto":
        with s3_server(kind) as server:
            yield server
        return
    server = replace(shared("moto"), bucket=f"outlive-test-{next(_numbers)}")
    client = server.client()
    client.create_bucket(Bucket=server.bucket)
    client.close()
    yield server
