"""Real S3 servers on this machine: ``with s3_server("rgw") as server:``, or ``shared("rgw")`` for a test run.

moto and ministack enforce ``If-None-Match``, and ministack verifies checksums, too. rclone and pys3local
ignore it; the latter ignores ``Range`` as well, and lists one page and no more. Swift looks first and writes
then. rgw is Ceph over TLS, the engine of DigitalOcean Spaces.
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

from fakes import radosgw, swift
from fakes.environments import environment
from fakes.programs import Program, free_port, listens

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

Kind = Literal["moto", "ministack", "rclone", "pys3local", "swift", "rgw"]
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
    start: dict[Kind, _Start] = {
        "moto": _moto,
        "ministack": _ministack,
        "rclone": _rclone,
        "pys3local": _pys3local,
        "swift": _swift,
        "rgw": ceph,
    }
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
def _ministack(folder: Path) -> Iterator[Server]:
    port = free_port()
    command = [str(environment("ministack", ["ministack==1.5.33"]) / "bin" / "ministack")]
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "SERVICES": "s3"}
    with _running(command, folder, port, **settings) as program:
        yield Server(
            kind="ministack",
            endpoint=f"http://127.0.0.1:{port}",
            access_key="AKTEST",
            secret_key="SKTEST",  # noqa: S106
            programs=(program,),
        )


@contextlib.contextmanager
def _pys3local(folder: Path) -> Iterator[Server]:
    port = free_port()
    program = str(environment("pys3local", ["pys3local==0.2.1"]) / "bin" / "pys3local")
    words = ["serve", "--path", str(folder / "data"), "--listen", f"127.0.0.1:{port}"]
    keys = ["--access-key-id", "AKTEST", "--secret-access-key", "SKTEST"]
    with _running([program, *words, *keys, "--allow-bucket-creation"], folder, port) as running:
        yield Server(
            kind="pys3local",
            endpoint=f"http://127.0.0.1:{port}",
            access_key="AKTEST",
            secret_key="SKTEST",  # noqa: S106
            create_only=False,
            programs=(running,),
        )


@contextlib.contextmanager
def _swift(folder: Path) -> Iterator[Server]:
    with swift.running(folder) as running:
        yield Server(
            kind="swift",
            endpoint=running.endpoint,
            access_key=swift.ACCESS_KEY,
            secret_key=swift.SECRET_KEY,
            create_only=False,
            programs=running.programs,
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
