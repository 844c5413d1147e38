"""An S3 store that talks to a server with scripted answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fakes.scripted import Answer, Request, Scripted, scripted
from outlive.objects.credentials import Credentials
from outlive.objects.presets import Endpoint
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
