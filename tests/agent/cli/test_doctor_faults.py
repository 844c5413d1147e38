"""``outlive doctor`` and stores that are sick, each in its own way."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from fakes.commands import Cli
from fakes.examined import SECRET, at, finding, levels
from fakes.scripted import Answer, Request, Scripted, error, scripted
from fakes.servers import shared
from fakes.small_s3 import SmallS3
from outlive_agent.doctor.together import Together

pytestmark = pytest.mark.usefixtures("quick_doctor")


def test_nobody_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead endpoint is one problem with what to do, and says what could not be checked."""
    monkeypatch.setenv("OUTLIVE_S3_ACCESS_KEY_ID", "AKTEST")
    monkeypatch.setenv("OUTLIVE_S3_SECRET_ACCESS_KEY", SECRET)
    said = cli("doctor", "--store", "s3://bucket/x", "--endpoint", "http://127.0.0.1:1", "--json")
    assert (said.code, said.json["verdict"]) == (1, "problem")
    assert "connect" in finding(said, "bucket")["seen"]
    assert {"writes", "create-only", "upload", "last-save"} <= set(said.json["not_checked"])
    assert levels(said)["memory"] == "ok"


def test_wrong_keys(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Ceph that refuses the keys: the hint speaks of keys, and shows none."""
    server = shared("rgw")
    at(server, monkeypatch)
    monkeypatch.setenv("OUTLIVE_S3_SECRET_ACCESS_KEY", SECRET)
    said = cli("doctor", "--json")
    found = finding(said, "bucket")
    assert (said.code, found["level"]) == (1, "problem")
    assert "access key" in found["change"]
    assert SECRET not in said.out


def test_wrong_region(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that lives elsewhere is not a matter of keys: the right region is named."""
    xml = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
    with scripted(lambda request: Answer(status=400, pieces=[xml], length=len(xml))) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--json")
    assert (
        finding(said, "bucket")["change"] == "the bucket is in eu-west-1: set that region, and its endpoint"
    )


@pytest.mark.parametrize(
    ("ahead", "level"), [(20.0, "ok"), (-120.0, "warning"), (3000.0, "problem"), (-3000.0, "problem")]
)
def test_a_wrong_clock(cli: Cli, monkeypatch: pytest.MonkeyPatch, ahead: float, level: str) -> None:
    """The store's Date against ours: minutes are warned of, and what S3 would refuse is a problem."""
    with scripted(SmallS3(ahead=timedelta(seconds=ahead))) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--json")
    found = finding(said, "clock")
    assert found["level"] == level
    assert ("behind" if ahead > 0 else "ahead of") in found["seen"]


def test_a_clock_that_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses every request for its time says so, and the hint is the clock."""
    refuse = SmallS3(fault=lambda r: error(403, "RequestTimeTooSkewed", "skewed"), ahead=timedelta(hours=1))
    with scripted(refuse) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--json")
    found = finding(said, "bucket")
    assert "this machine's clock is 60 min behind" in found["seen"]
    assert "set this machine's clock" in found["change"]


@pytest.mark.parametrize(
    ("answer", "change"),
    [
        (error(403, "QuotaExceeded", "Quota exceeded"), "delete something there"),
        (error(507, "XMinioStorageFull"), "delete something there"),
        (error(403, "AccessDenied", "Access Denied"), "check the access key"),
    ],
)
def test_no_write(cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: Answer, change: str) -> None:
    """A full store, and keys that may only read, are told apart; nothing more is tried."""
    store = SmallS3(fault=lambda request: answer if request.method == "PUT" else None)
    with scripted(store) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--json")
    found = finding(said, "writes")
    assert (said.code, found["level"]) == (1, "problem")
    assert change in found["change"]
    assert {"create-only", "upload", "download"} <= set(said.json["not_checked"])


def test_no_delete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that may not delete: a warning, nothing large is sent, and what stays is named."""

    def refuse(request: Request) -> Answer | None:
        gone = request.method == "DELETE" or (request.method == "POST" and "delete" in request.query)
        return error(403, "AccessDenied", "Access Denied") if gone else None

    store = SmallS3(fault=refuse)
    with scripted(store) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--json")
    assert (said.code, levels(said)["writes"], levels(said)["clean-up"]) == (0, "warning", "warning")
    assert "upload" in said.json["not_checked"]
    assert sum(len(body) for body in store.objects.values()) < 1000
    assert ".outlive-probe/" in finding(said, "clean-up")["seen"]


def test_what_others_left(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed doctor left is removed an hour later, what another is trying now is not."""
    with scripted(SmallS3()) as server:
        location = at(server, monkeypatch)
        prefix = location.split("/", 3)[3]
        small: SmallS3 = server.answer  # type: ignore[assignment]
        small.objects[f"{prefix}/.outlive-probe/fresh/1"] = b"x"
        cli("doctor")
        assert list(small.objects) == [f"{prefix}/.outlive-probe/fresh/1"]
        small.age[f"{prefix}/.outlive-probe/fresh/1"] = timedelta(hours=2)
        cli("doctor")
        assert list(small.objects) == []


def test_a_store_that_is_silent(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes the request and never answers: the time is over, and that is said."""
    with scripted(SmallS3()) as server:
        small: SmallS3 = server.answer  # type: ignore[assignment]
        small.fault = lambda request: _stalled(server)
        at(server, monkeypatch)
        said = cli("doctor", "--within", "1s", "--json")
    assert (said.code, levels(said)["bucket"]) == (1, "problem")
    assert finding(said, "bucket")["seen"] == "no answer within 1.0 s"


@pytest.mark.parametrize(
    ("number", "stalls", "code"),
    [(signal.SIGINT, False, 130), (signal.SIGINT, True, 130), (signal.SIGTERM, True, 143)],
)
def test_interrupted(number: signal.Signals, stalls: bool, code: int) -> None:
    """Ctrl-C or SIGTERM in the middle of the upload ends it at once, and leaves nothing in the bucket."""
    with scripted(SmallS3()) as server:
        small: SmallS3 = server.answer  # type: ignore[assignment]
        uploading = threading.Event()

        def notice(request: Request) -> Answer | None:
            if "/rate/" not in request.path or request.method != "PUT":
                return None
            uploading.set()
            return _stalled(server) if stalls else None

        small.fault = notice
        environ = {
            **os.environ,
            "OUTLIVE_S3_ENDPOINT": server.endpoint,
            "OUTLIVE_S3_ACCESS_KEY_ID": "AKTEST",
            "OUTLIVE_S3_SECRET_ACCESS_KEY": SECRET,
        }
        command = [
            sys.executable,
            "-m",
            "outlive_agent",
            "doctor",
            "--store",
            "s3://bucket/x",
            "--within",
            "10 min",
        ]
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            assert uploading.wait(60)
            process.send_signal(number)
            out = process.communicate(timeout=60)[0].decode()
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, out, list(small.objects)) == (code, "", [])


def test_a_link_that_is_too_slow(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over before the first megabyte is there, that is said, and nothing stays."""
    with scripted(SmallS3()) as server:
        small: SmallS3 = server.answer  # type: ignore[assignment]
        over = threading.Event()

        def slow(request: Request) -> Answer | None:
            if "/rate/" not in request.path or request.method != "PUT":
                return None
            over.set()
            return _stalled(server)

        small.fault = slow
        monkeypatch.setattr(Together, "left", property(lambda self: 0.0 if over.is_set() else 60.0))
        at(server, monkeypatch)
        said = cli("doctor", "--json")
        assert list(small.objects) == []
    assert (said.code, levels(said)["upload"]) == (1, "problem")
    assert finding(said, "upload")["seen"].startswith("262 kB did not arrive within ")
    assert {"download", "last-save"} <= set(said.json["not_checked"])


def _stalled(server: Scripted) -> Answer:
    server.leaving.wait(300)
    return error(503, "SlowDown")


def test_old_versions(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that keeps what is removed costs for ever what was pruned: that is said."""
    server = shared("moto")
    bucket = f"versions-{secrets.token_hex(4)}"
    client = server.client()
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    client.close()
    at(server, monkeypatch)
    found = finding(cli("doctor", "--store", f"s3://{bucket}", "--json"), "versions")
    assert (found["level"], "noncurrent versions" in found["change"]) == ("warning", True)
