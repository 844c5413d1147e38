"""Real S3 servers on this machine: ``with s3_server("rgw") as server:``, or ``shared("rgw")`` for a test run.

moto enforces ``If-None-Match``. rclone ignores it. rgw is Ceph over TLS, the engine of DigitalOcean Spaces.
"""

import atexit
import contextlib
import functools
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import boto3
from botocore.config import Config

from fakes import radosgw
from fakes.programs import Program, free_port, listens

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

Kind = Literal["moto", "rclone", "rgw"]
BUCKET = "outlive-test"
_Start: TypeAlias = "Callable[[Path], contextlib.AbstractContextManager[Server]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, with one empty bucket.

    ``programs``: to pause or kill, the one that serves first. ``ca_bundle``: where it speaks TLS.
    """

    kind: Kind
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str = BUCKET
    ca_bundle: str | None = None
    create_only: bool = True
    programs: tuple[Program, ...] = ()

    def location(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def environment(self) -> dict[str, str]:
        """What a process needs to reach it by ``location()``."""
        variables = {
            "OUTLIVE_S3_ENDPOINT": self.endpoint,
            "OUTLIVE_S3_ACCESS_KEY_ID": self.access_key,
            "OUTLIVE_S3_SECRET_ACCESS_KEY": self.secret_key,
        }
        return {**variables, "AWS_CA_BUNDLE": self.ca_bundle} if self.ca_bundle else variables

    def client(self) -> "S3Client":
        """A plain boto3 client, to look at the bucket without outlive."""
        config: Any = Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            verify=self.ca_bundle,
            config=config,
        )


@contextlib.contextmanager
def s3_server(kind: Kind, *, memory_bytes: int = 1 << 30) -> Iterator[Server]:
    """A fresh server for as long as the block lasts. ``memory_bytes``: how much Ceph can hold."""
    ceph = functools.partial(_rgw, memory_bytes=memory_bytes)
    start: dict[Kind, _Start] = {"moto": _moto, "rclone": _rclone, "rgw": ceph}
    with contextlib.ExitStack() as stack:
        server = _started(stack, kind, start[kind])
        client = server.client()
        client.create_bucket(Bucket=server.bucket)
        client.close()
        yield server


def _started(stack: contextlib.ExitStack, kind: Kind, start: "_Start") -> Server:
    """A second try, as somebody else may have taken the port in between."""
    for last in (False, True):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"outlive-{kind}-"))
        try:
            return stack.enter_context(start(Path(folder)))
        except RuntimeError:
            if last:
                raise
    raise AssertionError("unreachable")


@functools.cache
def shared(kind: Kind) -> Server:
    """One for the whole test run, started by whoever asks first. Use a prefix of your own in its bucket."""
    running = contextlib.ExitStack()
    atexit.register(running.close)
    return running.enter_context(s3_server(kind))


@contextlib.contextmanager
def _moto(folder: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]
    with _running(command, folder, port) as program:
        yield Server(
            kind="moto",
            endpoint=f"http://127.0.0.1:{port}",
            access_key="AKTEST",
            secret_key="SKTEST",  # noqa: S106
            programs=(program,),
        )


@contextlib.contextmanager
def _rclone(folder: Path) -> Iterator[Server]:
    port = free_port()
    secret = secrets.token_hex(16)
    data = folder / "data"
    data.mkdir()
    command = [
        str(Path(sys.executable).with_name("rclone")),
        *("serve", "s3", "--addr", f"127.0.0.1:{port}", "--config", str(folder / "rclone.conf")),
        *("--vfs-cache-mode", "off", "--dir-cache-time", "1s", str(data)),  # with 0s its timer never rests
    ]
    with _running(command, folder, port, RCLONE_AUTH_KEY=f'"AKTEST,{secret}"') as program:
        yield Server(
            kind="rclone",
            endpoint=f"http://127.0.0.1:{port}",
            access_key="AKTEST",
            secret_key=secret,
            create_only=False,
            programs=(program,),
        )


@contextlib.contextmanager
def _rgw(folder: Path, *, memory_bytes: int) -> Iterator[Server]:
    with radosgw.running(folder, memory_bytes=memory_bytes) as gateway:
        yield Server(
            kind="rgw",
            endpoint=gateway.endpoint,
            access_key=gateway.access_key,
            secret_key=gateway.secret_key,
            ca_bundle=str(gateway.certificate),
            programs=gateway.programs,
        )


@contextlib.contextmanager
def _running(command: list[str], folder: Path, port: int, **environment: str) -> Iterator[Program]:
    program = Program(command, log=folder / "log", environment=environment)
    try:
        program.wait_until(lambda: listens(port), seconds=60)
        yield program
    finally:
        program.stop()
