"""``outlive doctor`` on real stores, sound and sick ones."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli, Said
from fakes.scripted import Answer, Request, Scripted, error, scripted
from fakes.servers import Kind, Server, shared
from fakes.small_s3 import SmallS3
from outlive.objects.location import open_store
from outlive.objects.retry import Backoff
from outlive_agent.doctor import rates, store_checks, surroundings
from outlive_agent.emulate.server import Emulator
from outlive_agent.sources.detect import Surroundings, detect

JOB = """\
run: gpt
store: {{location: s3://bucket/runs, endpoint: "{endpoint}"}}
provider: aws
training:
  directory: /srv
  command: [python, train.py]
"""
SECRET = "SKVERYSECRET"  # noqa: S105


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few bytes, and a machine of no provider."""
    monkeypatch.setattr(rates, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(rates, "FIRST_BYTES", 1 << 18)
    monkeypatch.setattr(store_checks, "_BACKOFF", Backoff(first_seconds=0.01, deadline_seconds=0.1))
    monkeypatch.setattr(surroundings, "detect", lambda endpoint: Surroundings(provider=None, how="a test"))


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
    client = server.client()
    prefix = location.split("/", 3)[3]
    found = client.list_objects_v2(Bucket=server.bucket, Prefix=prefix).get("Contents", [])
    client.close()
    return [item["Key"] for item in found]


@pytest.mark.parametrize("kind", ["moto", "rgw", "rclone"])
def test_a_sound_bucket(cli: Cli, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """A real server passes; one that ignores create-only is warned of; nothing is left in the bucket."""
    server = shared(kind)
    location = at(server, monkeypatch)
    said = cli("doctor", "--json")
    found = levels(said)
    assert (said.code, said.json["not_checked"]) == (0, [])
    assert found["create-only"] == ("ok" if server.create_only else "warning")
    sound = ("bucket", "store", "keys", "writes", "clock", "upload", "download", "memory", "last-save")
    assert {found[check] for check in sound} == {"ok"}
    assert finding(said, "upload")["figures"]["bytes_per_second"] > 0
    assert left_in(server, location) == []


def test_the_page(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sees a line a check, what to change below it, and the verdict last; never a secret."""
    with scripted(SmallS3()) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--state", "1MB", "--provider", "vast")
    lines = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert any(line.startswith("ok       writes ") for line in lines)
    at_end = next(n for n, line in enumerate(lines) if line.startswith("warning  last-save"))
    assert "Vast.ai gives no notice: up to 15 min of training may be lost" in lines[at_end]
    assert lines[at_end + 1].strip().startswith("Try: save: {every: ")
    assert lines[-1].startswith("The promise can be kept, with 1 warning (15 checks in ")
    assert SECRET not in said.out


def test_strict(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --strict a script is told of warnings too."""
    with scripted(SmallS3()) as server:
        at(server, monkeypatch)
        assert cli("doctor", "--provider", "vast").code == 0
        assert cli("doctor", "--provider", "vast", "--strict").code == 1


def test_the_runs_own_checkpoint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest checkpoint's size decides, without what lies in the store already."""
    with scripted(SmallS3()) as server:
        location = at(server, monkeypatch)
        life = begin(open_store(location))
        frozen = bytes(range(256)) * 400
        for step in (10, 20):
            life.commit(snapshot(step, frozen, step.to_bytes(64, "big")))
        said = cli("doctor", "--run", "gpt", "--window", "120s", "--json")
        alone = cli("doctor", "--json")
    figures = finding(said, "checkpoint")["figures"]
    assert (figures["run"], figures["step"]) == ("gpt", 20)
    assert figures["bytes"] > len(frozen)
    assert finding(said, "last-save")["figures"]["fits"] is True
    assert finding(alone, "checkpoint")["figures"] == figures


def test_a_state_that_does_not_fit(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence has the size, the time it needs and the time there is, and what to change."""
    with scripted(SmallS3()) as server:
        at(server, monkeypatch)
        said = cli("doctor", "--state", "400 TB", "--window", "30s", "--json")
    found = finding(said, "last-save")
    assert found["level"] == "warning"
    assert found["seen"].startswith("a final save of 400 TB needs about ")
    assert "; the window you gave gives 30 s: it would not fit, up to " in found["seen"]
    assert "a smaller state" in found["change"]
    assert levels(said)["memory"] == "problem"


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


@pytest.mark.parametrize("stalls", [False, True])
def test_interrupted(stalls: bool) -> None:
    """Ctrl-C in the middle of the upload ends it at once, and leaves nothing in the bucket."""
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
        command = [sys.executable, "-m", "outlive_agent", "doctor", "--store", "s3://bucket/x"]
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            assert uploading.wait(60)
            process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=60)[0].decode()
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, out, list(small.objects)) == (130, "", [])


def _stalled(server: Scripted) -> Answer:
    server.leaving.wait(300)
    return error(503, "SlowDown")


def test_a_directory(cli: Cli, place: Path) -> None:
    """A directory of this machine does not outlive it; trying it leaves nothing at all behind."""
    before = sorted(place.rglob("*"))
    said = cli("doctor", "--json")
    assert (said.code, levels(said)["store"]) == (0, "warning")
    assert levels(said)["disk"] == "ok"
    assert sorted(place.rglob("*")) == before


def test_the_default_directory(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new account the place of the local default is made as an agent would, and removed again."""
    monkeypatch.delenv("OUTLIVE_STORE")
    said = cli("doctor", "--json")
    assert (said.code, levels(said)["writes"]) == (0, "ok")
    assert not (place / "home").exists()


def test_a_directory_that_can_not_be_written(cli: Cli, place: Path) -> None:
    """A read-only directory is a problem that names it."""
    store = place / "store"
    store.mkdir()
    subprocess.run(["chattr", "+i", store], check=True)
    try:
        said = cli("doctor", "--json")
    finally:
        subprocess.run(["chattr", "-i", store], check=True)
    assert (said.code, levels(said)["writes"]) == (1, "problem")
    assert str(store) in finding(said, "writes")["change"]


def test_a_provider_that_is_heard(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata server answers: named with its window. It does not: a warning with what to change."""
    with scripted(SmallS3()) as server, Emulator("azure") as emulator:
        at(server, monkeypatch)
        monkeypatch.setenv("OUTLIVE_METADATA_ENDPOINT", emulator.url)
        monkeypatch.setattr(
            surroundings, "detect", lambda endpoint: detect(endpoint=endpoint, firmware=Path("/none"))
        )
        found = finding(cli("doctor", "--json"), "provider")
        assert (found["level"], found["figures"]["provider"]) == ("ok", "azure")
        assert found["figures"]["window_seconds"] == 30
        assert finding(cli("doctor", "--provider", "azure", "--json"), "provider")["level"] == "ok"
        silent = finding(cli("doctor", "--provider", "gcp", "--json"), "provider")
    assert (silent["level"], silent["figures"]["heard"]) == ("warning", False)
    assert "169.254.169.254" in silent["change"]


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


def test_a_job_file(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a desk: the file, its secrets and its store; of the machine only what the file says."""
    with scripted(SmallS3()) as server:
        at(server, monkeypatch)
        text = JOB.format(endpoint=server.endpoint)
        (place / "job.yaml").write_text(text)
        said = cli("doctor", str(place / "job.yaml"), "--state", "1GB", "--json")
        (place / "job.yaml").write_text(text.replace("directory: /srv", "archive: code.tar.gz"))
        missing = cli("doctor", str(place / "job.yaml"), "--json")
        (place / "job.yaml").write_text(text + "  colour: red\n")
        wrong = cli("doctor", str(place / "job.yaml"))
    assert (said.code, said.json["machine"], said.json["run"]) == (0, False, "gpt")
    assert not {"memory", "software", "upload", "limits"} & levels(said).keys()
    assert {levels(said)[check] for check in ("job", "writes", "create-only", "provider")} == {"ok"}
    assert finding(said, "last-save")["seen"].startswith("AWS EC2 gives 2 min: a final save of 1.0 GB needs ")
    assert "there is no code.tar.gz" in finding(missing, "job")["seen"]
    assert (wrong.code, "unknown key" in wrong.err) == (78, True)


def test_wrong_settings(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that make no sense are told all at once, before anything is asked."""
    file = place / "outlive.yaml"
    monkeypatch.delenv("OUTLIVE_STORE")
    file.write_text("run: 'a b'\nstore: {location: /x, colour: red}\n")
    said = cli("doctor", "--config", str(file))
    assert (said.code, said.out) == (78, "")
    assert "2 settings are wrong" in said.err
    assert cli("doctor", "--state", "much").code == 2
    assert cli("doctor", "--state", "0GB").code == 78
