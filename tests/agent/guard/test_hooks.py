"""Commands of the user's own: what they are told, and that nothing they do can harm a run."""

import io
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from fakes.agents import Machine, wait_until
from outlive_agent.exits import Exit
from outlive_agent.hooks import Hooks
from outlive_agent.journal import Journal
from outlive_agent.settings.values import HookSettings


def _environs(file: Path) -> list[dict[str, str]]:
    """What each run of a hook that writes its environment was told."""
    text = file.read_text() if file.exists() else ""
    runs = [block.split("\n") for block in text.split("--\n") if block]
    return [dict(line.split("=", 1) for line in run if "=" in line) for run in runs]


def _flags(machine: Machine, *names: str) -> tuple[str, ...]:
    """Hooks that write down their environment, one file each."""
    hooks = [f"{{ env; echo --; }} >> {machine.directory / name}" for name in names]
    return tuple(word for name, hook in zip(names, hooks, strict=True) for word in (f"--{name}", hook))


def test_what_they_are_told(machine: Machine) -> None:
    """Run, life, step, reason, deadline and outcome are in the environment of each, and no key is."""
    keys = {"OUTLIVE_S3_SECRET_ACCESS_KEY": "hush", "SLACK": "mine"}
    options = ("--every", "10 steps", *_flags(machine, "on-notice", "on-saved", "on-end"))
    run = machine.exec("--steps", "100000", options=options, environ=keys)
    run.wait_line("saved step 10 ")
    wait_until(lambda: bool(_environs(machine.directory / "on-saved")), what="on_saved")
    began = time.time()
    reclaim = machine.start(
        [sys.executable, "-m", "outlive_agent", "reclaim", "t", "--store", str(machine.store), "--in", "20s"]
    )
    assert reclaim.exit_code() == 0, reclaim.text
    run.wait_line("reclaim announced by inbox")
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    saved = _environs(machine.directory / "on-saved")[0]
    assert saved["OUTLIVE_REASON"] == "interval"
    assert saved["SLACK"] == "mine"
    assert not any("hush" in value for value in saved.values())
    noticed, told = _environs(machine.directory / "on-notice")
    assert (noticed["OUTLIVE_REASON"], noticed["OUTLIVE_SOURCE"]) == ("reclaim", "inbox")
    assert abs(int(noticed["OUTLIVE_DEADLINE"]) - began - 20) < 15
    assert (told["OUTLIVE_REASON"], told["OUTLIVE_SOURCE"]) == ("signal", "SIGTERM")
    (ended,) = _environs(machine.directory / "on-end")
    assert (ended["OUTLIVE_OUTCOME"], ended["OUTLIVE_REASON"]) == ("stopped", "signal")
    assert ended["OUTLIVE_STEP"] == str(machine.events(1)[-1]["step"])
    for each in (saved, noticed, ended):
        assert (each["OUTLIVE_RUN"], each["OUTLIVE_LIFE"]) == ("t", "1")
        assert each["OUTLIVE_STORE"] == str(machine.store)


def test_hook_that_hangs(machine: Machine) -> None:
    """It is killed with its whole group when its time is over, and costs the run nothing but a warning."""
    pids = machine.directory / "pids"
    file = machine.directory / "outlive.yaml"
    hang = f"sleep 1000 & echo $! >> {pids}; echo about to hang; sleep 1000"
    file.write_text(f"hooks: {{on_end: '{hang}', timeout: 500ms}}\n")
    run = machine.exec("--steps", "30", options=("--config", str(file)))
    assert run.exit_code() == Exit.FINISHED, run.text
    run.wait_line("warning: the hook on_end was killed")
    assert machine.checkpoints()[-1] == (1, 30)
    (background,) = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not _lives(background), what="the whole group is gone")


def test_hook_that_leaves_something_behind(machine: Machine) -> None:
    """What a hook leaves in the background ends with it; that is no failure, and costs no warning."""
    pids = machine.directory / "pids"
    hook = f"sleep 1000 & echo $! >> {pids}"
    run = machine.exec("--steps", "30", options=("--on-end", hook))
    assert run.exit_code() == Exit.FINISHED, run.text
    (background,) = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not _lives(background), what="it is gone")
    assert "hook" not in run.text


def test_hook_that_fails_each_time(machine: Machine) -> None:
    """A hook that fails at every save is one warning, with its last line."""
    hook = "echo first; echo no such channel >&2; exit 3"
    options = ("--every", "5 steps", "--on-saved", hook)
    run = machine.exec("--steps", "60", options=options)
    assert run.exit_code() == Exit.FINISHED, run.text
    told = [line for line in run.lines if "hook" in line]
    assert told == ["outlive: warning: the hook on_saved ended with exit code 3: no such channel"]


def test_flood(tmp_path: Path) -> None:
    """While one runs those that follow wait as one, which is the newest."""
    go, seen = tmp_path / "go", tmp_path / "seen"
    os.mkfifo(go)
    hooks, journal = _hooks(f"echo $OUTLIVE_STEP >> {seen}; read line < {go}")
    for step in range(100):
        hooks.run("on_saved", deadline=None, step=step)
        wait_until(seen.exists, what="the first runs")
    go.write_text("on\n")
    wait_until(lambda: len(seen.read_text().split()) == 2, what="the second runs")
    go.write_text("on\n")
    hooks.close(seconds=20, meanwhile=lambda: None)
    assert seen.read_text().split() == ["0", "99"]
    assert journal.getvalue() == ""


def test_missing_program() -> None:
    """A hook that can't be started is one warning."""
    hooks, journal = _hooks(("/no/such/program",))
    hooks.run("on_saved", deadline=None, step=1)
    hooks.close(seconds=20, meanwhile=lambda: None)
    assert re.fullmatch(
        "outlive: warning: the hook on_saved can't be started: no such file or directory\n",
        journal.getvalue(),
    )


def test_variables_of_the_keys_are_withheld(tmp_path: Path) -> None:
    """What holds the store's keys, and what is said to systemd, stays with the agent."""
    out = tmp_path / "out"
    environ = {"MY_SECRET": "hush", "NOTIFY_SOCKET": "/x", "PATH": os.environ["PATH"], "OTHER": "1"}
    hooks, _ = _hooks(f"env > {out}", environ=environ, withheld=("MY_SECRET",))
    hooks.run("on_saved", deadline=None, step=1)
    hooks.close(seconds=20, meanwhile=lambda: None)
    told = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert "OTHER" in told
    assert not {"MY_SECRET", "NOTIFY_SOCKET"} & told.keys()
    assert told["OUTLIVE_DEADLINE"] == ""


@pytest.mark.parametrize("stdin", ["cat", "read line || echo empty"])
def test_nothing_to_read(tmp_path: Path, stdin: str) -> None:
    """A hook that asks for input gets none, rather than the terminal's."""
    hooks, journal = _hooks(f"{stdin}; touch {tmp_path / 'done'}")
    hooks.run("on_saved", deadline=None, step=1)
    hooks.close(seconds=20, meanwhile=lambda: None)
    assert (tmp_path / "done").exists()
    assert journal.getvalue() == ""


def _hooks(
    command: "str | tuple[str, ...]",
    *,
    environ: "Mapping[str, str] | None" = None,
    withheld: tuple[str, ...] = (),
) -> tuple[Hooks, io.StringIO]:
    words = ("/bin/sh", "-c", command) if isinstance(command, str) else command
    settings = HookSettings(on_saved=words, timeout=timedelta(seconds=20), withheld=withheld)
    stream = io.StringIO()
    inherited = dict(os.environ) if environ is None else environ
    return Hooks(settings, inherited, about={"OUTLIVE_RUN": "t"}, journal=Journal(stream)), stream


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
