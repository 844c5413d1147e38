"""The same guard with real S3 servers: one that honours create-only, one that does not."""

import json
import signal
import socket
from typing import cast

import pytest

from fakes.agents import Exec, Machine
from fakes.servers import Kind, shared
from outlive_agent.exits import Exit


@pytest.mark.parametrize("kind", ["moto", "rclone"])
def test_bucket(machine: Machine, kind: str) -> None:
    """A run is stopped and goes on at the same step with its checkpoints in a bucket."""
    server = shared(cast("Kind", kind))
    prefix = server.location(machine.directory.name)

    def start(steps: int) -> Exec:
        options = ("--store", prefix, "--every", "20 steps")
        return machine.exec("--steps", str(steps), options=options, environ=server.environment())

    first = start(100_000)
    first.wait_line("saved step .*interval")
    first.signal(signal.SIGTERM)
    assert first.exit_code() == Exit.RESUME, first.text
    assert ("fencing is best effort" in first.text) == (not server.create_only)
    second = start(100_000)
    restored = second.wait_line(f"^restored .* from {prefix}$")
    second.signal(signal.SIGTERM)
    assert second.exit_code() == Exit.RESUME, second.text
    step = int(restored.split()[1])
    listing = server.client().list_objects_v2(
        Bucket=server.bucket, Prefix=f"{machine.directory.name}/t/history/"
    )
    ended = [item["Key"] for item in listing["Contents"] if item["Key"].endswith("-ended.json")]
    assert len(ended) == 2
    body = server.client().get_object(Bucket=server.bucket, Key=ended[0])["Body"]
    with body:
        assert json.loads(body.read())["step"] == step


def test_wrong_keys(machine: Machine) -> None:
    """Missing keys are one line that says what to do, and the training is not started."""
    server = shared("moto")
    environ = {"OUTLIVE_S3_ENDPOINT": server.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    run = machine.exec("--steps", "5", options=("--store", server.location("x")), environ=environ)
    assert run.exit_code() == Exit.CONFIG, run.text
    assert "Traceback" not in run.text
    assert "fresh" not in run.lines


def test_missing_bucket(machine: Machine) -> None:
    """A bucket that is not there is one line, and the training is not started."""
    server = shared("moto")
    options = ("--store", "s3://no-such-bucket-here/x")
    run = machine.exec("--steps", "5", options=options, environ=server.environment())
    assert run.exit_code() == Exit.CONFIG, run.text
    assert "no-such-bucket-here" in run.text
    assert "fresh" not in run.lines


def test_unreachable_store_can_be_interrupted(machine: Machine) -> None:
    """While a store that can't be reached is tried again, that is said, and Ctrl-C ends it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
        environ = {
            **shared("moto").environment(),
            "OUTLIVE_S3_ENDPOINT": f"http://127.0.0.1:{taken.getsockname()[1]}",
        }
        run = machine.exec("--steps", "5", options=("--store", "s3://bucket/x"), environ=environ)
        run.wait_line("warning: trying again")
        run.signal(signal.SIGINT)
        assert run.exit_code() == Exit.RESUME, run.text
    assert "Traceback" not in run.text


def test_sealed_bucket(machine: Machine) -> None:
    """With a key of the user's nothing is readable in the bucket, and only who has the key goes on.

    A machine without it, or with another, claims nothing: the one that trains goes on training.
    """
    server = shared("moto")
    prefix = server.location(machine.directory.name)
    sealed = {**server.environment(), "OUTLIVE_ENCRYPTION_KEY": "0f" * 32}

    def start(environ: dict[str, str]) -> Exec:
        options = ("--store", prefix, "--every", "20 steps")
        return machine.exec("--steps", "100000", options=options, environ=environ)

    def keys(below: str = "") -> list[str]:
        prefix = f"{machine.directory.name}/t/{below}"
        return [
            item["Key"] for item in client.list_objects_v2(Bucket=server.bucket, Prefix=prefix)["Contents"]
        ]

    client = server.client()
    first = start(sealed)
    first.wait_line("saved step .*interval")
    for other, said in (
        ({}, "is encrypted, and no key is given"),
        ({"OUTLIVE_ENCRYPTION_KEY": "f0" * 32}, "is encrypted with another key"),
        ({"OUTLIVE_SIGNING_KEY": "0f" * 32}, "is encrypted, and OUTLIVE_SIGNING_KEY is set"),
    ):
        elsewhere = {"XDG_RUNTIME_DIR": str(machine.directory / "other")}
        stranger = start({**server.environment(), **elsewhere, **other})
        assert stranger.exit_code() == Exit.CONFIG, stranger.text
        assert said in stranger.text
        assert "set OUTLIVE_ENCRYPTION_KEY" in stranger.text
        assert "fresh" not in stranger.lines
        assert "Traceback" not in stranger.text
    saved = sum("saved step" in line for line in first.lines)
    first.wait_line("saved step .*interval", count=saved + 1)
    assert [key.rpartition("/")[2] for key in keys("lives/")] == ["000001.adopted.json", "000001.json"]
    first.signal(signal.SIGTERM)
    assert first.exit_code() == Exit.RESUME, first.text
    last = start(sealed)
    last.wait_line(f"^restored .* from {prefix}$")
    last.signal(signal.SIGTERM)
    assert last.exit_code() == Exit.RESUME, last.text
    for key in keys():
        body = client.get_object(Bucket=server.bucket, Key=key)["Body"].read()
        assert b"outlive/" not in body, key


def test_key_for_a_run_that_has_none(machine: Machine) -> None:
    """A run that was begun without a key goes on under none: nothing is claimed, and that is said."""
    first = machine.exec("--steps", "20")
    assert first.exit_code() == Exit.FINISHED, first.text
    second = machine.exec("--steps", "40", environ={"OUTLIVE_SIGNING_KEY": "0f" * 32})
    assert second.exit_code() == Exit.CONFIG, second.text
    assert "is not sealed, and OUTLIVE_SIGNING_KEY is set" in second.text
    assert not (machine.store / "t" / "lives" / "000002.json").exists()
