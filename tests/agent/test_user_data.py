"""The user-data as a whole: cloud-init accepts it, it is what the job says, secrets are where they belong."""

import base64
import gzip
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.cloudinit import check_schema
from outlive.errors import ConfigError, OutliveError
from outlive.objects.sealed import Encryption
from outlive_agent import config
from outlive_agent.bootstrap.job import Job, read_job
from outlive_agent.bootstrap.plan import Archive, Git, Plan
from outlive_agent.bootstrap.render import collect, render
from outlive_agent.bootstrap.size import LIMITS, fit
from outlive_agent.bootstrap.templates import text_of
from outlive_agent.settings.credentials import credentials_for, seal_for

JOB = """\
run: gpt
store: {location: s3://runs/x, endpoint: https://nyc3.digitaloceanspaces.com}
save: {every: 500 steps, keep: {last: 3}}
provider: digitalocean
training:
  repository: {url: https://github.com/me/training.git, ref: main, token: {from_env: GITHUB}}
  command: [python, train.py, --lr, 1e-3, 'é 🎈 a b%n $HOME "\\;']
  requirements: [numpy, "torch==2.9"]
  environment: {OMP_NUM_THREADS: 8, LR: 1e-3, ODD: "é 🎈", HF_TOKEN: {from_env: HF}}
  writable: [/big]
"""
SECRETS = ("secret-key", "github-token", "hf-token")
ENVIRON = {
    "OUTLIVE_S3_ACCESS_KEY_ID": "key-id",
    "OUTLIVE_S3_SECRET_ACCESS_KEY": SECRETS[0],
    "GITHUB": SECRETS[1],
    "HF": SECRETS[2],
}


def job(text: str = JOB) -> Job:
    return read_job(text, name="job.yaml")


def files(text: str) -> dict[str, Mapping[str, Any]]:
    assert text.startswith("#cloud-config\n")
    return {file["path"]: file for file in yaml.safe_load(text)["write_files"]}


@pytest.fixture(scope="module")
def rendered() -> str:
    """The user-data of JOB."""
    return render(job(), collect(job(), ENVIRON))


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
@pytest.mark.parametrize("name", ["full", "example"])
def test_cloud_init_accepts_it(tmp_path: Path, rendered: str, release: str, name: str) -> None:
    """cloud-init's own schema check passes, in its oldest and its newest version that we support."""
    example = job(text_of("cloud-init/job.yaml"))
    text = rendered if name == "full" else render(example, collect(example, ENVIRON))
    file = tmp_path / "user-data.yaml"
    file.write_text(text, encoding="utf-8")
    done = check_schema(file, release)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "alid" in done.stdout
    file.write_text(text.replace('permissions: "0600"', "permissions: 384"), encoding="utf-8")
    assert 0 != check_schema(file, release).returncode


def test_agent_understands_its_configuration(tmp_path: Path, rendered: str) -> None:
    """outlive.yaml on the machine is what the job file says, read by the agent's own strict reader."""
    file = tmp_path / "outlive.yaml"
    file.write_text(files(rendered)["/etc/outlive/outlive.yaml"]["content"])
    found = config.load(file)
    assert "gpt" == found.run
    assert "s3://runs/x" == found.store.location
    assert 500 == found.save.every.steps
    assert found.store.credentials is not None
    assert "credentials" == found.store.credentials.systemd
    assert found.training is not None
    assert job().training.command == found.training.command


def test_machine_understands_its_plan(rendered: str) -> None:
    """job.json carries the code, the packages and the user to the machine unchanged."""
    plan = Plan.decode(files(rendered)["/etc/outlive/job.json"]["content"])
    assert Git(url="https://github.com/me/training.git", ref="main", token=SECRETS[1]) == plan.source
    assert ("numpy", "torch==2.9") == plan.environment.requirements
    assert "train" == plan.user
    assert "token" not in repr(plan)


def test_secrets_are_in_private_files_only(rendered: str) -> None:
    """Every file that holds a secret is root's alone; the masked text has the same shape and none of them."""
    found = files(rendered)
    for path, file in found.items():
        if any(secret in file["content"] for secret in SECRETS):
            assert "0600" == file["permissions"], path
    assert all(secret in rendered for secret in SECRETS)
    masked = render(job(), collect(job(), ENVIRON).masked())
    assert not [secret for secret in (*SECRETS, "key-id") if secret in masked]
    assert list(found) == list(files(masked))


def test_scripts_are_sound(tmp_path: Path, rendered: str) -> None:
    """The bootstrap script is valid for the shell, and the units of the user-data for systemd."""
    found = files(rendered)
    script = tmp_path / "outlive-bootstrap"
    script.write_text(found["/usr/local/sbin/outlive-bootstrap"]["content"])
    subprocess.run(["sh", "-n", str(script)], check=True)
    unit = tmp_path / "outlive-bootstrap.service"
    text = found["/etc/systemd/system/outlive-bootstrap.service"]["content"]
    unit.write_text(text.replace("/usr/local/sbin/outlive-bootstrap", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == done.stderr
    runs = yaml.safe_load(rendered)["runcmd"]
    assert ["systemctl", "start", "--no-block", "outlive-bootstrap.service"] in runs


def test_key_to_seal_with_goes_where_the_keys_go(tmp_path: Path) -> None:
    """The key that is set here is in the credentials file alone, also on a machine with a role of its own."""
    key = "0f" * 32
    for text in (JOB, JOB.replace("endpoint:", "credentials: machine, endpoint:")):
        secrets = collect(job(text), {**ENVIRON, "OUTLIVE_ENCRYPTION_KEY": key})
        rendered = render(job(text), secrets)
        assert rendered.count(key) == 1
        found = files(rendered)
        assert f"OUTLIVE_ENCRYPTION_KEY={key}" in found["/etc/outlive/credentials"]["content"]
        assert key not in render(job(text), secrets.masked())
        place = tmp_path / "credentials"
        place.write_text(found["/etc/outlive/credentials"]["content"])
        (tmp_path / "outlive.yaml").write_text(found["/etc/outlive/outlive.yaml"]["content"])
        store = config.load(tmp_path / "outlive.yaml").store
        assert isinstance(seal_for(store, {"CREDENTIALS_DIRECTORY": str(tmp_path)}), Encryption)
        assert (credentials_for(store, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) is None) == (
            "machine" in text
        )
    with pytest.raises(ConfigError, match="64 hexadecimal"):
        collect(job(), {**ENVIRON, "OUTLIVE_ENCRYPTION_KEY": "password"})


def test_machine_with_a_role_gets_no_keys() -> None:
    """`credentials: machine` asks for no keys and writes none."""
    text = JOB.replace("endpoint:", "credentials: machine, endpoint:")
    secrets = collect(job(text), {"GITHUB": "g", "HF": "h"})
    found = files(render(job(text), secrets))
    assert "KEY" not in found["/etc/outlive/credentials"]["content"]
    assert "credentials" not in found["/etc/outlive/outlive.yaml"]["content"]


def test_missing_secrets_are_named() -> None:
    """What must be set and isn't is named, without any value."""
    with pytest.raises(ConfigError, match="GITHUB and HF are not set"):
        collect(job(), {})
    with pytest.raises(ConfigError, match="no keys for the bucket"):
        collect(job(), {"GITHUB": "g", "HF": "h"})


@pytest.mark.parametrize("provider", LIMITS)
def test_too_large_is_compressed_or_refused(provider: str) -> None:
    """Up to the limit it stays as it is, above it is compressed; what never fits is refused with figures."""
    limit = LIMITS[provider]
    text = "x" * limit
    assert text == fit(text, provider)
    packed = fit(text + "y", provider)
    assert len(packed) <= limit
    with pytest.raises(OutliveError, match=f"{limit + 1:,} bytes; {limit:,} are allowed"):
        fit(text + "y", provider, compress="never")
    noise = base64.b64encode(os.urandom(limit)).decode()
    with pytest.raises(OutliveError, match=f"compressed from {len(noise):,}; {limit:,} are allowed"):
        fit(noise, provider)


def test_compressed_text_unpacks_to_itself(rendered: str) -> None:
    """The compressed form is a MIME part of the type that cloud-init unpacks."""
    part = message_from_string(fit(rendered, "aws", compress="always"))
    assert "application/gzip" == part.get_content_type()
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert rendered == gzip.decompress(payload).decode()


def test_is_ascii(rendered: str) -> None:
    """It is all ASCII, since cloud-init misreads the rest once it was compressed; values arrive intact."""
    assert rendered.isascii()
    assert 'ODD="é 🎈"' in files(rendered)["/etc/outlive/training.env"]["content"]


def test_fits_the_smallest_provider(rendered: str) -> None:
    """An ordinary job needs no compression anywhere, so that people can read what they paste."""
    assert len(rendered) < min(LIMITS.values()) / 2


def test_uploaded_archive_is_found_by_its_key(tmp_path: Path) -> None:
    """A file here becomes an object that the plan names."""
    text = JOB.replace(
        "repository: {url: https://github.com/me/training.git, ref: main, token: {from_env: GITHUB}}",
        "archive: code.tar.gz",
    )
    found = files(
        render(job(text), collect(job(text), ENVIRON), archive=Archive(key="gpt/artifacts/code/0.tar.gz"))
    )
    assert (
        Archive(key="gpt/artifacts/code/0.tar.gz")
        == Plan.decode(found["/etc/outlive/job.json"]["content"]).source
    )


def outlive(
    *arguments: str, directory: Path, stdout: int = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    """`outlive user-data` as people run it."""
    return subprocess.run(
        [sys.executable, "-m", "outlive_agent", "user-data", *arguments],
        cwd=directory,
        env={**ENVIRON, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_output_file_is_private(tmp_path: Path) -> None:
    """--output writes a file that only its owner can read, also over one that all could."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "u.yaml").write_text("old")
    (tmp_path / "u.yaml").chmod(0o644)
    done = outlive("job.yaml", "--output", "u.yaml", directory=tmp_path)
    assert (0, "") == (done.returncode, done.stdout), done.stderr
    assert 0o600 == (tmp_path / "u.yaml").stat().st_mode & 0o777
    assert SECRETS[0] in (tmp_path / "u.yaml").read_text()
    assert not [secret for secret in SECRETS if secret in done.stderr]


def test_pipe_gets_the_real_text(tmp_path: Path, rendered: str) -> None:
    """What is piped on is complete, and the notes go elsewhere."""
    (tmp_path / "job.yaml").write_text(JOB)
    done = outlive("job.yaml", directory=tmp_path)
    assert rendered == done.stdout
    assert "main may move" in done.stderr


@pytest.mark.parametrize(("options", "hidden"), [((), True), (("--show-secrets",), False)])
def test_terminal_sees_no_secret_unasked(tmp_path: Path, options: tuple[str, ...], hidden: bool) -> None:
    """On a terminal the keys are masked, and it says how to get the real text; --show-secrets shows them."""
    (tmp_path / "job.yaml").write_text(JOB)
    ours, theirs = pty.openpty()
    done = outlive("job.yaml", *options, directory=tmp_path, stdout=theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        shown = _drain(terminal.fileno())
    assert 0 == done.returncode, done.stderr
    assert hidden is not any(secret in shown for secret in SECRETS)
    assert hidden is ("-o user-data.yaml" in done.stderr)
    assert "#cloud-config" in shown


def _drain(fd: int) -> str:
    """Everything that was written to a terminal whose other end is closed."""
    found = b""
    while True:
        try:
            block = os.read(fd, 65536)
        except OSError:  # how Linux says that nobody is left
            block = b""
        if not block:
            return found.decode()
        found += block


def test_example_is_a_job(tmp_path: Path) -> None:
    """--example prints a job file that the same verb reads, and that asks for no secret but the keys."""
    done = outlive("--example", directory=tmp_path)
    (tmp_path / "job.yaml").write_text(done.stdout)
    again = outlive("job.yaml", directory=tmp_path)
    assert 0 == again.returncode, again.stderr
    plan = json.loads(files(again.stdout)["/etc/outlive/job.json"]["content"])
    assert "token" not in plan["source"]
