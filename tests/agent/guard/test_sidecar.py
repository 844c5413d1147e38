"""A bare ``python train.py`` without any agent starts one for itself."""

import signal

from fakes.agents import TRAINER, Machine, children, kill, wait_until
from outlive_agent.runtime import DrainLock


def _environ(machine: Machine) -> "dict[str, str]":
    return {"OUTLIVE_STORE": str(machine.store), "OUTLIVE_RUN": "t", "OUTLIVE_EVERY": "10 steps"}


def test_bare_training_is_saved(machine: Machine) -> None:
    """A training that was started by hand is saved and resumed like any other."""
    first = machine.start([*TRAINER, "--steps", "15"], environ=_environ(machine))
    assert first.exit_code() == 0, first.text
    wait_until(lambda: (1, 15) in machine.checkpoints(), what="the sidecar has saved the end")
    second = machine.start([*TRAINER, "--steps", "20"], environ=_environ(machine))
    second.wait_line(f"^restored 15 from {machine.store}$")
    assert second.exit_code() == 0, second.text


def test_sidecar_outlives_its_training(machine: Machine) -> None:
    """The sidecar finishes what it accepted after its training was killed; the next start waits for it."""
    run = machine.start([*TRAINER, "--steps", "100", "--die-at", "20"], environ=_environ(machine))
    assert run.exit_code() == -signal.SIGKILL, run.text
    again = machine.start([*TRAINER, "--steps", "25"], environ=_environ(machine))
    again.wait_line("^restored 20 from")
    assert again.exit_code() == 0, again.text


def test_waits_for_an_agent_that_still_saves(machine: Machine) -> None:
    """The next life is claimed only when an earlier agent on this machine has finished its last save."""
    root = machine.directory / "outlive"
    root.mkdir(mode=0o700)
    lock = DrainLock(root, str(machine.store), run="t")
    lock.hold()
    run = machine.exec("--steps", "5")
    run.wait_line("an earlier agent still saves this run; waiting for it")
    assert not (machine.store / "t").exists()
    lock.release()
    assert run.exit_code() == 0, run.text


def test_waits_for_a_training_that_lost_its_agent(machine: Machine) -> None:
    """After its agent was killed a training has all the time it needs to save: the next life waits for it."""
    log = machine.directory / "log"
    run = machine.exec("--steps", "100000", "--pause", "1", "--log", str(log), options=("--every", "1h"))
    run.wait_line("training: step")
    run.process.kill()
    again = machine.exec("--steps", "100000")
    again.wait_line("an earlier agent still saves this run; waiting for it")
    restored = again.wait_line("^restored .* from")
    run.exit_code()
    assert int(restored.split()[1]) == int(log.read_text().split()[-1])
    again.signal(signal.SIGTERM)
    assert again.exit_code() == 75, again.text


def test_sidecar_killed(machine: Machine) -> None:
    """A training whose sidecar is killed starts another one, and its last step is saved."""
    log = machine.directory / "log"
    run = machine.start([*TRAINER, "--steps", "100000", "--log", str(log)], environ=_environ(machine))
    run.wait_line("saved step 10 ")
    (sidecar,) = children(run.process.pid)
    kill(sidecar)
    assert run.exit_code() == 75, run.text
    reached = int(log.read_text().split()[-1])
    wait_until(lambda: (1, reached) in machine.checkpoints(), what="the second sidecar has saved the end")


def test_sidecar_that_cannot_start_says_why(machine: Machine) -> None:
    """A sidecar with a wrong setting refuses the training with the reason."""
    run = machine.start([*TRAINER, "--steps", "5"], environ={**_environ(machine), "OUTLIVE_RUN": "../up"})
    assert run.exit_code() == 78, run.text
    assert "refused: " in run.text
