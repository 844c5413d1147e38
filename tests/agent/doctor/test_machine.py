"""What is seen of a machine: memory and its limits, software, keys, and where the store is."""

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from rich.console import Console

from outlive.objects.credentials import Credentials
from outlive_agent.cli.doctor_page import print_report
from outlive_agent.cli.output import Printer
from outlive_agent.doctor.checkpoint import State
from outlive_agent.doctor.finding import Finding, Report, ok, problem, warning
from outlive_agent.doctor.keys import keys
from outlive_agent.doctor.limits import disk
from outlive_agent.doctor.memory import look_at_memory, memory, shared_memory
from outlive_agent.doctor.place import place
from outlive_agent.doctor.software import software
from outlive_agent.doctor.subject import Subject
from outlive_agent.settings.values import Config, StoreSettings

GIB = 1 << 30
BIG = State(whole_bytes=14 * GIB, sent_bytes=14 * GIB, source="a test")


@pytest.fixture
def container(tmp_path: Path) -> dict[str, Path]:
    """A machine with 64 GiB free, in it a group that may have 8 GiB and uses 3, one of them cache."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {64 * GIB // 1024} kB\n")
    (tmp_path / "cgroup").write_text("0::/pod/job\n")
    group = tmp_path / "groups" / "pod"
    (group / "job").mkdir(parents=True)
    (group / "memory.max").write_text(f"{8 * GIB}\n")
    (group / "memory.current").write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    (group / "job" / "memory.max").write_text("max\n")
    (group / "job" / "memory.current").write_text("1\n")
    return {
        "meminfo": tmp_path / "meminfo",
        "own_group": tmp_path / "cgroup",
        "groups": tmp_path / "groups",
    }


def test_a_containers_limit_counts(container: dict[str, Path]) -> None:
    """Not what the machine has, but what the container may still take, its cache not counted."""
    found = look_at_memory(**container)
    assert (found.free_bytes, found.limit) == (6 * GIB, "8.6 GB")
    assert memory(found, BIG).level == "problem"
    assert "a snapshot needs 15.0 GB more" in memory(found, BIG).seen
    assert memory(found, None).level == "ok"
    half = State(whole_bytes=4 * GIB, sent_bytes=4 * GIB, source="a test")
    assert memory(found, half).level == "warning"


def test_no_group_is_no_limit(container: dict[str, Path], tmp_path: Path) -> None:
    """On a machine without groups the machine's own memory counts."""
    found = look_at_memory(**{**container, "own_group": tmp_path / "none"})
    assert (found.free_bytes, found.limit) == (64 * GIB, "")
    assert (found.copy_rate or 0) > 0
    assert memory(found, BIG).level == "ok"


def test_limits_of_the_shell() -> None:
    """A limit on sizes makes memory files impossible: found by trying, and named with what undoes it."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from outlive_agent.doctor.limits import limits
from outlive_agent.doctor.memory import look_at_memory, memory
for found in (memory(look_at_memory(), None), limits(None)):
    print(found.level, "|", found.seen, "|", found.change)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = said.splitlines()
    assert first.startswith("problem | no memory file can be made: ")
    assert "ulimit -f unlimited" in first
    assert second == ("warning | RLIMIT_FSIZE 1.0 MB, RLIMIT_NOFILE 64 | ulimit -f unlimited, ulimit -n 4096")


def test_shared_memory(tmp_path: Path) -> None:
    """None at all is warned of; what there is is told."""
    assert shared_memory(path=tmp_path / "none").level == "warning"
    assert shared_memory(path=Path("/")).figures["bytes"]


def test_disk(tmp_path: Path) -> None:
    """A directory needs room for what is kept and the next one; a bucket is not asked."""
    whole = State(whole_bytes=1 << 60, sent_bytes=1 << 60, source="a test")
    assert disk("s3://bucket/x", BIG, keep=3) is None
    found = disk(str(tmp_path / "not" / "there"), whole, keep=3)
    assert found is not None
    assert (found.level, found.figures["needed_bytes"]) == ("problem", 4 << 60)


def package(prefix: Path, version: str) -> Path:
    info = prefix / "lib" / "python3.11" / "site-packages" / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return prefix


def test_the_trainings_torch_counts(tmp_path: Path) -> None:
    """The training's own environment is looked at first, without loading anything of it."""
    found = software({}, training=package(tmp_path / "new", "2.9.1"))
    assert (found.level, found.figures["torch"]) == ("ok", "2.9.1")
    old = package(tmp_path / "old", "1.13.1+cu117")
    assert software({"VIRTUAL_ENV": str(old)}).level == "problem"
    assert software({"VIRTUAL_ENV": str(old)}, training=tmp_path / "none").level == "warning"
    beside = tmp_path / "beside" / "lib" / "python3.11" / "site-packages"
    beside.mkdir(parents=True)
    (beside / "torch.pth").write_text(f"{tmp_path}/new/lib/python3.11/site-packages\nimport os; os.abort()\n")
    assert software({}, training=tmp_path / "beside").figures["torch"] == "2.9.1"


def env(**values: str) -> dict[str, str]:
    return {"OUTLIVE_S3_ACCESS_KEY_ID": "AK", "OUTLIVE_S3_SECRET_ACCESS_KEY": "SKHIDDEN", **values}


def expires(delta: timedelta) -> dict[str, str]:
    moment = (datetime.now(timezone.utc) + delta).strftime("%Y-%m-%dT%H:%M:%SZ")
    return env(OUTLIVE_S3_SESSION_TOKEN="STHIDDEN", AWS_CREDENTIAL_EXPIRATION=moment)  # noqa: S106


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        (env(), "ok", "don't expire"),
        (env(OUTLIVE_S3_SESSION_TOKEN="STHIDDEN"), "warning", "nobody says how long"),  # noqa: S106
        (expires(timedelta(days=3)), "ok", "expire in 2 d 23 h"),
        (expires(timedelta(hours=5)), "warning", "no save and no machine after that"),
        (expires(timedelta(hours=-5)), "problem", "expired 5 h"),
    ],
)
def test_keys_that_expire(environ: dict[str, str], level: str, words: str) -> None:
    """Temporary keys end the saves: when is said where it is known. No key is ever shown."""
    found = keys(None, environ)
    assert (found.level, words in found.seen) == (level, True)
    assert "HIDDEN" not in repr(found)


def test_given_keys() -> None:
    """Keys from a file are named by the file."""
    given = Credentials(access_key="AK", secret_key="SKHIDDEN")  # noqa: S106
    assert keys(given, {}, place="from /etc/outlive/credentials").seen.startswith("from /etc/outlive/")


@pytest.fixture
def no_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home where boto3 finds only what a test puts there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


def test_keys_of_boto3(no_aws: Path) -> None:
    """No keys at all, keys in its file, temporary ones there, and ones that a program renews."""
    assert keys(None, {}).level == "problem"
    text = "[default]\naws_access_key_id=AK\naws_secret_access_key=SKHIDDEN\n"
    (no_aws / "credentials").write_text(text)
    assert keys(None, {}).seen == "found by boto3 (shared-credentials-file); they don't expire by themselves"
    (no_aws / "credentials").write_text(f"{text}aws_session_token=STHIDDEN\n")
    assert keys(None, {}).level == "warning"
    (no_aws / "credentials").unlink()
    moment = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = '{"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "SKHIDDEN", "SessionToken": "STHIDDEN", '
    program = no_aws / "program"
    program.write_text(f'#!/bin/sh\necho \'{answer}"Expiration": "{moment}"}}\'\n')
    program.chmod(0o700)
    (no_aws / "config").write_text(f"[default]\ncredential_process = {program}\n")
    found = keys(None, {})
    assert (found.level, "renewed by themselves" in found.seen) == ("ok", True)
    assert "HIDDEN" not in repr(found)


@pytest.mark.parametrize(
    ("location", "settings", "level", "seen"),
    [
        (
            "s3://bucket/p",
            {"endpoint": "https://nyc3.digitaloceanspaces.com"},
            "ok",
            "DigitalOcean, region nyc3, https://nyc3.digitaloceanspaces.com",
        ),
        (
            "s3://bucket/p",
            {"region": "eu-west-1"},
            "ok",
            "AWS, region eu-west-1, https://s3.eu-west-1.amazonaws.com",
        ),
        ("s3://bucket/p", {"endpoint": "http://minio.lan"}, "warning", "not encrypted on the way"),
        ("s3://bucket/p", {"endpoint": "http://127.0.0.1:9000"}, "ok", "http://127.0.0.1:9000"),
        ("/mnt/nfs/runs", {}, "ok", "a directory on nfs4, which outlives this machine"),
        ("/mnt/disk/runs", {}, "warning", "a directory on a disk (ext4) of this machine, and gone with it"),
        ("/mnt/shm/runs", {}, "warning", "a directory on memory of this machine"),
    ],
)
def test_where_the_store_is(
    tmp_path: Path, location: str, settings: dict[str, str], level: str, seen: str
) -> None:
    """Buckets with provider and region; directories by what is mounted there."""
    mounts = tmp_path / "mounts"
    mounts.write_text("disk / ext4 rw 0 0\nserver:/x /mnt/nfs nfs4 rw 0 0\ntmpfs /mnt/shm tmpfs rw 0 0\n")
    found: Finding = place(StoreSettings(location=location, **settings), mounts=mounts)  # type: ignore[arg-type]
    assert (found.level, seen in found.seen) == (level, True)


def test_the_page_keeps_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """At 80 columns no line is longer, however long a finding is; levels stand in one column."""
    long = "a word and another one " * 12
    findings = [
        ok("store", "short"),
        warning("shared-memory", long, change=long),
        problem("last-save", "x" * 300, change="y"),
    ]
    report = Report(findings=findings, not_checked=["upload"], seconds=1.0)
    subject = Subject(config=Config(run="gpt", store=StoreSettings(location="/x")), run="gpt")
    print_report(Printer(_console=Console(width=80, highlight=False, markup=False)), subject, report)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "this machine, run gpt in /x"
    assert max(len(line) for line in lines) <= 80
    told = [line.split()[0] for line in lines[1:-2] if line and not line.startswith(" ")]
    assert told == ["ok", "warning", "problem"]
    assert lines[-2] == "Not checked: upload"
    assert lines[-1] == "The promise can't be kept yet: 1 problem and 1 warning (3 checks in 1.0 s)"
