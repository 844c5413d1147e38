"""``outlive doctor`` on sound stores: what it says, and what is left afterwards."""

import subprocess
from pathlib import Path

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli
from fakes.examined import SECRET, at, finding, left_in, levels
from fakes.scripted import scripted
from fakes.servers import Kind, shared
from fakes.small_s3 import SmallS3
from outlive.objects.location import open_store
from outlive.objects.sealed import Encryption, Sealed
from outlive_agent.doctor import surroundings
from outlive_agent.emulate.server import Emulator
from outlive_agent.sources.detect import detect

pytestmark = pytest.mark.usefixtures("quick_doctor")
JOB = """\
run: gpt
store: {{location: s3://bucket/runs, endpoint: "{endpoint}"}}
provider: aws
training:
  directory: /srv
  command: [python, train.py]
"""


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


def test_a_sealed_store(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key all is as without a seal; without it the checkpoint can't be read, and that is said."""
    with scripted(SmallS3()) as server:
        location = at(server, monkeypatch)
        monkeypatch.setenv("OUTLIVE_ENCRYPTION_KEY", "a1" * 32)
        begin(Sealed(open_store(location), Encryption(b"\xa1" * 32))).commit(snapshot(10, b"x" * 1000))
        sealed = cli("doctor", "--run", "gpt", "--json")
        monkeypatch.delenv("OUTLIVE_ENCRYPTION_KEY")
        blind = finding(cli("doctor", "--run", "gpt", "--json"), "checkpoint")
    assert (sealed.code, sealed.json["not_checked"]) == (0, [])
    assert finding(sealed, "checkpoint")["figures"]["step"] == 10
    assert "a1a1" not in sealed.out
    assert (blind["level"], "OUTLIVE_ENCRYPTION_KEY" in blind["change"]) == ("warning", True)


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
    monkeypatch.setenv("OUTLIVE_STOP_WINDOW", "soon")
    assert cli("doctor").code == 78
    assert cli("doctor", "--state", "much").code == 2
    assert cli("doctor", "--state", "0GB").code == 78
