"""``outlive exec`` with real processes: saved, stopped, killed, resumed."""

import signal
from pathlib import Path

import pytest

from fakes.agents import TRAINER, Machine, children, kill, wait_until
from outlive_agent.exits import Exit


def test_interval_saves_and_finishes(machine: Machine) -> None:
    """A run that ends by itself has saved every ten steps and its end, and exits 0."""
    run = machine.exec("--steps", "34", options=("--every", "10 steps", "--keep", "9"))
    assert run.exit_code() == Exit.FINISHED, run.text
    assert machine.checkpoints() == [(1, 10), (1, 20), (1, 30), (1, 34)]
    ended = machine.events(1)[-1]
    assert (ended["event"], ended["outcome"], ended["step"], ended["steps_lost"]) == (
        "ended",
        "finished",
        34,
        0,
    )


def test_saves_by_the_clock(machine: Machine) -> None:
    """An interval in seconds is counted by the agent, not by the training."""
    run = machine.exec("--steps", "100000", options=("--every", "200ms"))
    run.wait_line("saved step .*interval", count=3)
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_saves_the_last_step(machine: Machine, number: signal.Signals) -> None:
    """A stop by signal saves the step that was reached, and the next start goes on right there."""
    run = machine.exec("--steps", "100000", "--log", str(machine.directory / "log"))
    run.wait_line(r"saved step [2-9]0 ")
    run.signal(number)
    assert run.exit_code() == Exit.RESUME, run.text
    reached = int((machine.directory / "log").read_text().split()[-1])
    assert machine.checkpoints()[-1] == (1, reached)
    assert machine.events(1)[-1]["steps_lost"] == 0
    again = machine.exec("--steps", str(reached + 5))
    again.wait_line(f"^restored {reached} from {machine.store}$")
    assert again.exit_code() == Exit.FINISHED, again.text
    assert machine.events(2)[1]["checkpoint"] == [1, reached]


def test_sigusr1_saves_and_goes_on(machine: Machine) -> None:
    """SIGUSR1 saves at the next step, and training goes on."""
    run = machine.exec("--steps", "100000", options=("--every", "1h"))
    run.wait_line("training: step")
    run.signal(signal.SIGUSR1)
    run.wait_line("saved step .*signal")
    run.signal(signal.SIGUSR1)
    run.wait_line("saved step .*signal", count=2)
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text


def test_repeated_sigterm_is_harmless(machine: Machine) -> None:
    """A supervisor that sends SIGTERM more than once does not cost the last save."""
    run = machine.exec("--steps", "100000", "--pause", "0.3")
    run.wait_line("training: step")
    for _ in range(3):
        run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_second_interrupt_does_not_wait_for_the_training(machine: Machine) -> None:
    """A person who presses Ctrl-C twice is not kept waiting by a step that takes for ever."""
    run = machine.exec("--steps", "100", "--pause", "3600", options=("--stop-grace", "1h"))
    run.wait_line("fresh")
    run.signal(signal.SIGINT)
    run.wait_line("SIGINT: saving and stopping")
    run.insist(signal.SIGINT, "not waiting")
    run.exit_code()


def test_trainer_killed_after_its_snapshot_was_accepted(machine: Machine) -> None:
    """A snapshot that was accepted becomes a checkpoint although its trainer is killed at once."""
    run = machine.exec("--steps", "100", "--die-at", "20", options=("--every", "20 steps"))
    assert run.exit_code() == Exit.FAILED, run.text
    assert machine.checkpoints() == [(1, 20)]
    assert "signal 9" in run.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_agent_killed(machine: Machine) -> None:
    """When the agent is killed, the training saves its last step through another one, and nothing is lost."""
    log = machine.directory / "log"
    run = machine.exec("--steps", "100000", "--log", str(log))
    run.wait_line(r"saved step [2-9]0 ")
    (trainer,) = children(run.process.pid)
    run.process.kill()
    run.exit_code()
    wait_until(lambda: not _alive(trainer), what="the training has stopped")
    reached = int(log.read_text().split()[-1])
    again = machine.exec("--steps", str(reached + 5))
    again.wait_line(f"^restored {reached} from")
    assert again.exit_code() == Exit.FINISHED, again.text
    assert [event["event"] for event in machine.events(1)] == [
        "started",
        "fresh",
        "training",
        "taken-over",
        "ended",
    ]


def test_command_ends_with_a_killed_agent(machine: Machine) -> None:
    """A command whose agent is killed is asked to stop by the kernel, attached or not."""
    run = machine.exec(command=["sleep", "1000"])
    wait_until(lambda: len(children(run.process.pid)) == 1, what="the command has started")
    (child,) = children(run.process.pid)
    run.process.kill()
    wait_until(lambda: not _alive(child), what="the command is gone")


def test_both_killed(machine: Machine) -> None:
    """When everything is killed at once, the next start resumes from the last checkpoint."""
    run = machine.exec("--steps", "100000")
    run.wait_line(r"saved step [2-9]0 ")
    (trainer,) = children(run.process.pid)
    run.signal(signal.SIGSTOP)
    kill(trainer)
    run.process.kill()
    run.exit_code()
    newest = machine.checkpoints()[-1][1]
    again = machine.exec("--steps", str(newest + 5))
    again.wait_line(f"^restored {newest} from")
    assert again.exit_code() == Exit.FINISHED, again.text


def test_restart_from_memory(machine: Machine) -> None:
    """A crash is answered by a restart from memory, without a byte from the store, and a crash loop ends."""
    run = machine.exec("--steps", "100", "--die-at", "25", options=("--every", "10 steps", "--restarts", "2"))
    assert run.exit_code() == Exit.FAILED, run.text
    assert run.lines.count("restored 20 from memory") == 2
    assert "crashed 3 times without a save in between" in run.text
    assert [event["event"] for event in machine.events(1)].count("crashed") == 2


def test_restart_when_the_memory_is_half_written(machine: Machine) -> None:
    """A trainer that dies while it copies over the only state in memory is restarted from the store."""
    command = [*TRAINER, "--steps", "100", "--die-copying", "30"]
    run = machine.exec(command=command, options=("--every", "10 steps", "--restarts", "1"))
    run.wait_line(f"^restored 20 from {machine.store}")
    assert run.exit_code() == Exit.FAILED, run.text


def test_exception_is_a_failure(machine: Machine) -> None:
    """A training that fails ends with the code for failure, and the step that was lost is told."""
    run = machine.exec("--steps", "100", "--fail-at", "23")
    assert run.exit_code() == Exit.FAILED, run.text
    ended = machine.events(1)[-1]
    assert (ended["steps_lost"], ended["message"]) == (3, "ValueError: a bad batch")


def test_command_that_never_attaches(machine: Machine) -> None:
    """Any command can be run: its success and its failure are those of the agent."""
    assert machine.exec(command=["true"]).exit_code() == Exit.FINISHED
    assert machine.exec(command=["false"]).exit_code() == Exit.FAILED


def test_nothing_is_left_behind(machine: Machine) -> None:
    """What the command leaves running ends with it, and so do socket and status."""
    pid_file = machine.directory / "pid"
    run = machine.exec(command=["sh", "-c", f"sleep 1000 & echo $! > {pid_file}"])
    assert run.exit_code() == Exit.FINISHED, run.text
    left = int(pid_file.read_text())
    wait_until(lambda: not _alive(left), what="the leftover process is gone")
    assert [path for path in (machine.directory / "outlive").iterdir() if path.is_dir()] == []


def test_rewind(machine: Machine) -> None:
    """A rewind resumes from the step it names, says what it leaves behind, and can be taken back."""
    first = machine.exec("--steps", "30", options=("--every", "10 steps", "--keep", "9"))
    assert first.exit_code() == Exit.FINISHED
    back = machine.exec("--steps", "15", options=("--every", "1h", "--rewind", "10"))
    back.wait_line("^restored 10 from")
    back.wait_line("to step 10 of life 1: 2 checkpoints are left behind, the newest of step 30 .*--rewind 30")
    assert back.exit_code() == Exit.FINISHED, back.text
    after = machine.exec("--steps", "16")
    after.wait_line("^restored 15 from")
    assert after.exit_code() == Exit.FINISHED
    undone = machine.exec("--steps", "31", options=("--rewind", "30"))
    undone.wait_line("^restored 30 from")
    assert undone.exit_code() == Exit.FINISHED, undone.text


def test_rewind_to_a_step_that_is_not_there(machine: Machine) -> None:
    """A rewind to nowhere is a wrong setting, named in one line."""
    run = machine.exec("--steps", "5", options=("--rewind", "7"))
    assert run.exit_code() == Exit.CONFIG, run.text
    assert "no checkpoint of step 7" in run.text
    assert not list(machine.store.glob("t/lives/*"))


def test_ranks_of_several_machines_are_refused(machine: Machine) -> None:
    """A job of which other ranks are elsewhere is refused with the reason, rather than saved by halves."""
    run = machine.exec("--steps", "5", environ={"WORLD_SIZE": "2"})
    assert run.exit_code() == Exit.FAILED
    assert "refused: 1 of this job's 2 ranks are on this machine" in run.text


def test_no_such_command(machine: Machine) -> None:
    """A command that does not exist is told before a life is claimed."""
    run = machine.exec(command=["no-such-program"])
    assert run.exit_code() == Exit.CONFIG, run.text
    assert not (machine.store / "t").exists()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_the_name_of_another_script(machine: Machine) -> None:
    """A run that nobody named is refused where another directory began it, before it is claimed."""
    environ = {"OUTLIVE_STORE": str(machine.store)}
    commands = []
    for name in ("a", "b"):
        (machine.directory / name).mkdir()
        script = machine.directory / name / "train.py"
        script.write_text(f"import runpy\nrunpy.run_path({TRAINER[1]!r}, run_name='__main__')\n")
        agent = [TRAINER[0], "-m", "outlive_agent", "exec", "--", TRAINER[0], str(script), "--steps", "5"]
        commands.append(agent)
    first = machine.start(commands[0], environ=environ)
    assert first.exit_code() == Exit.FINISHED, first.text
    second = machine.start(commands[1], environ=environ)
    assert second.exit_code() == Exit.CONFIG, second.text
    assert len([line for line in second.lines if "error: run " in line]) == 1
    (lives,) = machine.store.glob("*/lives")
    assert len(list(lives.glob("*.json"))) == 2  # the claim, and what it resumed from
    named = machine.start(commands[1], environ={**environ, "OUTLIVE_RUN": lives.parent.name})
    assert named.exit_code() == Exit.FINISHED, named.text
