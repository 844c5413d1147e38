"""``outlive rehearse``: trainings that are well, taken away in every way; and what can't be rehearsed."""

import signal
import sys
from pathlib import Path

import pytest

from fakes import warm
from fakes.agents import descendants, wait_until
from outlive_agent.exits import Exit

from .conftest import Rehearse, alive


def test_exact_training_is_proved_equal(rehearse: Rehearse) -> None:
    """Shuffled, augmented in workers, with dropout: equal, and told in 80 columns."""
    done = rehearse.run(
        "--provider", "none", "--steps", "12", "--seed", "3", command=rehearse.command("none")
    )
    assert done.returncode == Exit.FINISHED, done.stdout + done.stderr
    assert "EQUAL for 10 steps\n" in done.stdout
    assert "10 of loss" in done.stdout
    assert max(map(len, done.stdout.splitlines()[2:])) <= 80
    left = {path.name for path in rehearse.directory.iterdir()}
    assert left == {"outlive", "types.py"}  # the agents' runtime directory, and what was there before


@pytest.mark.parametrize("provider", ["aws", "nebius"])
def test_taken_away_as_the_provider_does(rehearse: Rehearse, provider: str) -> None:
    """The real agent hears the provider's own notice, or its signal, and the run that goes on is the same."""
    outcome = rehearse.json("none", "--provider", provider, "--steps", "12", "--seed", "3")
    assert outcome["equal"]
    assert outcome["by"] == ("sigterm" if provider == "nebius" else "notice")
    first, reclaimed, resumed = outcome["legs"]
    assert [first["to"], resumed["to"]] == [12, 12]
    assert reclaimed["from"] in first["saved"]
    assert reclaimed["to"] == reclaimed["saved"][-1] == resumed["from"] > reclaimed["from"]


def test_killed_without_a_word(rehearse: Rehearse) -> None:
    """Agent and training die at once: the steps since the last save are done again, and are the same."""
    outcome = rehearse.json("none", "--provider", "vast", "--steps", "12", "--seed", "5")
    assert outcome["equal"]
    _, reclaimed, resumed = outcome["legs"]
    assert (outcome["by"], reclaimed["exit"]) == ("sigkill", -9)
    assert reclaimed["from"] < resumed["from"] < reclaimed["to"]


def test_nothing_to_compare_is_not_equal(rehearse: Rehearse, tmp_path: Path) -> None:
    """A script that shows neither a tensor nor a number is proved nothing, and told what to do."""
    script = tmp_path / "bare.py"
    script.write_text(
        "import outlive\nwith outlive.attach(seen=0) as run:\n    while run.steps < 9:\n        run.step()\n"
    )
    python = [sys.executable, "-S", warm.__file__, "run", str(rehearse.socket), str(script)]
    done = rehearse.run("--provider", "none", "--steps", "3", command=python)
    assert done.returncode == Exit.FAILED, done.stdout + done.stderr
    assert "NOTHING WAS COMPARED" in done.stdout
    assert "EQUAL" not in done.stdout
    assert "outlive.attach(model=model" in done.stdout


def test_own_store_is_not_touched(rehearse: Rehearse, tmp_path: Path) -> None:
    """What the environment says of the user's own store counts for nothing, and scratch keeps it all."""
    done = rehearse.run(
        *("--provider", "none", "--steps", "3", "--scratch", str(tmp_path / "kept")),
        command=rehearse.command("none"),
        environ={"OUTLIVE_STORE": str(tmp_path / "own"), "OUTLIVE_RUN": "own"},
    )
    assert done.returncode == Exit.FINISHED, done.stdout + done.stderr
    assert not (tmp_path / "own").exists()
    assert (tmp_path / "kept" / "store" / "own" / "checkpoints").is_dir()
    assert (tmp_path / "kept" / "1-uninterrupted.jsonl").is_file()


def test_command_that_never_trains(bare: Rehearse) -> None:
    """A command without outlive in it is told from one that fails, with what it said last."""
    done = bare.run("--provider", "none", command=[sys.executable, "-c", "print('hello')"])
    assert done.returncode == Exit.FAILED
    assert "before its first step" in done.stderr
    assert "hello" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(bare: Rehearse, number: signal.Signals) -> None:
    """Whoever ends a rehearsal ends its legs; only a SIGKILL leaves the directory behind."""
    with bare.start("--provider", "none", command=["sleep", "1000"]) as rehearsal:
        try:
            wait_until(lambda: len(list(descendants(rehearsal.pid))) == 2, what="agent and command run")
            started = list(descendants(rehearsal.pid))
        finally:
            rehearsal.send_signal(number)
        code = rehearsal.wait()
    wait_until(lambda: not any(map(alive, started)), what="agent and command are gone")
    assert code == (-9 if number == signal.SIGKILL else 130)
    left = list(bare.directory.glob("outlive-rehearsal-*"))
    assert len(left) == (number == signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "command", "code", "said"),
    [
        ((), [], Exit.USAGE, "no command"),
        (("--steps", "2"), ["true"], Exit.USAGE, "3 or more"),
        (("--for", "30"), ["true"], Exit.USAGE, "duration with its unit"),
        ((), ["no-such-program"], Exit.CONFIG, "no program 'no-such-program'"),
        (("--provider", "azur"), ["true"], Exit.CONFIG, "no provider 'azur'"),
        (("--scratch", "/proc"), ["true"], Exit.CONFIG, "/proc is not empty"),
    ],
)
def test_bad_use(
    bare: Rehearse, options: "tuple[str, ...]", command: "list[str]", code: Exit, said: str
) -> None:
    """What can't be meant is refused before anything is started."""
    given = options if "--provider" in options else (*options, "--provider", "none")
    done = bare.run(*given, command=command)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
