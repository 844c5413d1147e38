"""Points ``outlive doctor`` at a bucket, and reads what it answered."""

import secrets
import time
from typing import Any

import pytest

from fakes.commands import Said
from fakes.scripted import Scripted
from fakes.servers import Server

SECRET = "SKVERYSECRET"  # noqa: S105
SETTLED_SECONDS = 10.0


def at(server: Server | Scripted, monkeypatch: pytest.MonkeyPatch, prefix: str = "") -> str:
    """Point this process at a bucket; the prefix it is to use."""
    if isinstance(server, Server):
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        bucket = server.bucket
    else:
        monkeypatch.setenv("OUTLIVE_S3_ENDPOINT", server.endpoint)
        monkeypatch.setenv("OUTLIVE_S3_ACCESS_KEY_ID", "AKTEST")
        monkeypatch.setenv("OUTLIVE_S3_SECRET_ACCESS_KEY", SECRET)
        bucket = "bucket"
    location = f"s3://{bucket}/{prefix or secrets.token_hex(6)}"
    monkeypatch.setenv("OUTLIVE_STORE", location)
    return location


def levels(said: Said) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in said.json["findings"]}


def finding(said: Said, check: str) -> Any:
    return next(found for found in said.json["findings"] if found["check"] == check)


def left_in(server: Server, location: str) -> list[str]:
    """What is in the bucket, once its listing has settled: rclone shows removed objects for a second."""
    client = server.client()
    prefix = location.split("/", 3)[3]
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        found = client.list_objects_v2(Bucket=server.bucket, Prefix=prefix).get("Contents", [])
        if not found or time.monotonic() >= deadline:
            client.close()
            return [item["Key"] for item in found]
