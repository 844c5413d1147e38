"""The units, judged by systemd itself."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from outlive_agent.bootstrap.templates import path_of, text_of
from outlive_agent.exits import Exit

UNITS = ("outlive-agent.service", "outlive-train.service")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory with the units and the programs that they start."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for name in UNITS:
        shutil.copy(path_of(f"systemd/{name}"), units)
    for program in ("opt/outlive/venv/bin/python", "usr/bin/env", "usr/bin/systemctl"):
        file = tmp_path / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    for target in ("sysinit", "basic", "shutdown", "network-online", "nss-lookup", "multi-user"):
        (units / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    return tmp_path


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_has_nothing_to_complain_of(root: Path, unit: str) -> None:
    """`systemd-analyze verify` reads every line of the units and finds every program."""
    done = _analyze("verify", "--recursive-errors=yes", "--man=no", f"--root={root}", unit)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("unit", "at_most"), [("outlive-agent.service", 2.0), ("outlive-train.service", 2.5)]
)
def test_exposure_stays_low(unit: str, at_most: float) -> None:
    """`systemd-analyze security` finds the agent safe, and the training as safe as a GPU allows."""
    file = str(path_of(f"systemd/{unit}"))
    done = _analyze("security", "--offline=true", f"--threshold={int(at_most * 10)}", file)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= at_most
    assert 0 == done.returncode


def test_training_stops_first_and_survives_the_agent() -> None:
    """The training starts after the agent, so it stops before it, but does not fall with it."""
    train = _settings("outlive-train.service")
    assert "outlive-agent.service" in train["After"][0].split()
    assert "outlive-agent.service" not in train["Wants"][0].split(), "an agent that has ended would come back"
    assert not {"Requires", "BindsTo", "PartOf", "Requisite", "StopPropagatedFrom"} & train.keys()
    for name in UNITS:
        assert "network-online.target" in _settings(name)["After"][0].split()


def test_no_restart_where_it_would_not_help() -> None:
    """Told to stop (75 saved, 74 not), superseded (76), wrong setting (78): the end; saved is no failure."""
    ends = (Exit.SAVE_FAILED, Exit.RESUME, Exit.SUPERSEDED, Exit.CONFIG)
    for name in UNITS:
        settings = _settings(name)
        assert [" ".join(f"{code:d}" for code in ends)] == settings["RestartPreventExitStatus"]
        assert [f"{Exit.RESUME:d}"] == settings["SuccessExitStatus"]
        assert ["on-failure"] == settings["Restart"]


def test_keys_go_to_the_agent_alone() -> None:
    """Only the agent loads the keys; the training sees no file with them, and no metadata server."""
    train = _settings("outlive-train.service")
    assert ["credentials:/etc/outlive/credentials"] == _settings("outlive-agent.service")["LoadCredential"]
    assert not [key for key in train if key.startswith("LoadCredential")]
    assert {"-/etc/outlive", "-/run/credentials", "-/var/lib/cloud"} <= set(
        train["InaccessiblePaths"][0].split()
    )
    assert "169.254.169.254" in train["IPAddressDeny"][0].split()
    assert train["User"] != _settings("outlive-agent.service")["User"]


def test_users_are_made(tmp_path: Path) -> None:
    """systemd-sysusers makes every user and group that the units name."""
    (tmp_path / "etc").mkdir()
    text = text_of("systemd/outlive-sysusers.conf")
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", "-"],
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    users = {line.split(":")[0] for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    groups = {line.split(":")[0] for line in (tmp_path / "etc/group").read_text().splitlines()}
    assert {"outlive", "train"} <= users, done.stderr
    assert {"outlive", "train", "render", "video"} <= groups


def _analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "SYSTEMD_LOG_LEVEL": "warning", "LANG": "C.UTF-8"}
    return subprocess.run(
        ["systemd-analyze", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def _settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text_of(f"systemd/{unit}").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found
