"""A store that fails never costs the training: it goes on, says so once, and tries again."""

import json
import resource
import shutil
import signal
from pathlib import Path

from fakes.agents import TRAINER, Machine, wait_until
from outlive_agent.exits import Exit


def test_full_store(machine: Machine) -> None:
    """A save that does not fit is one warning; training goes on, and the end says what was lost."""

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, resource.RLIM_INFINITY))

    trainer = " ".join([*TRAINER, "--steps", "100", "--bytes", str(1024 * 1024)])
    run = machine.exec(command=["sh", "-c", f"ulimit -S -f unlimited; exec {trainer}"], before=small_files)
    run.wait_line("warning: step 10 was not saved")
    code = run.exit_code()
    assert code == Exit.SAVE_FAILED, run.text
    assert machine.checkpoints() == []
    assert machine.events(1)[-1]["step"] == 100
    assert machine.events(1)[-1]["steps_lost"] == 100
    assert "Traceback" not in run.text


def test_store_that_comes_back(machine: Machine) -> None:
    """A later save that succeeds says so, and nothing is lost in the end."""
    run = machine.exec("--steps", "100000")
    run.wait_line("saved step 10 ")
    manifests = machine.store / "t" / "checkpoints"
    elsewhere = machine.directory / "elsewhere"
    shutil.move(manifests, elsewhere)
    manifests.write_text("a file where a directory must be")
    run.wait_line("warning: step .* was not saved .training goes on, trying again")
    manifests.unlink()
    shutil.move(elsewhere, manifests)
    run.wait_line("saved step .*saves work again")
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_patience_holds_for_steps(machine: Machine) -> None:
    """With an interval in steps, too, nothing is tried before the time that was told after a failure."""
    log = machine.directory / "log"
    run = machine.exec("--steps", "100000", "--log", str(log))
    run.wait_line("saved step 10 ")
    manifests, elsewhere = machine.store / "t" / "checkpoints", machine.directory / "elsewhere"
    shutil.move(manifests, elsewhere)
    manifests.write_text("a file where a directory must be")
    run.wait_line("was not saved .training goes on, trying again in 5.0 s")
    reached = int(log.read_text().split()[-1])
    wait_until(lambda: int(log.read_text().split()[-1]) >= reached + 40, what="four intervals more")
    assert len([line for line in run.lines if "was not saved" in line]) == 1
    manifests.unlink()
    shutil.move(elsewhere, manifests)
    run.wait_line("saves work again")


def test_last_save_is_tried_again(machine: Machine) -> None:
    """A last save that fails is tried again although nobody trains any more, and nothing is lost."""
    run = machine.exec("--steps", "100000")
    run.wait_line("saved step 10 ")
    manifests, elsewhere = machine.store / "t" / "checkpoints", machine.directory / "elsewhere"
    shutil.move(manifests, elsewhere)
    manifests.write_text("a file where a directory must be")
    run.signal(signal.SIGTERM)
    run.wait_line("was not saved .trying again")
    manifests.unlink()
    shutil.move(elsewhere, manifests)
    assert run.exit_code() == Exit.RESUME, run.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_damaged_checkpoint_is_passed_over(machine: Machine) -> None:
    """An altered chunk makes the next life fall back to an older checkpoint, and say so."""
    assert machine.exec("--steps", "25").exit_code() == Exit.FINISHED
    newest = machine.store / "t" / "checkpoints" / "000001-000000000025.json"
    chunk = json.loads(newest.read_bytes())["parts"][0]["chunks"][0]
    path = machine.store / "t" / "chunks" / "000001-000000000025" / chunk["blake3"]
    path.chmod(0o600)
    path.write_bytes(b"\0" * chunk["bytes"])
    run = machine.exec("--steps", "30")
    run.wait_line("warning: step 25 of life 1 is passed over")
    run.wait_line("^restored 20 from")
    assert run.exit_code() == Exit.FINISHED, run.text


def test_all_checkpoints_damaged(machine: Machine) -> None:
    """A run whose every checkpoint is damaged does not begin from zero by itself."""
    assert machine.exec("--steps", "5").exit_code() == Exit.FINISHED
    for path in (machine.store / "t" / "checkpoints").glob("*.json"):
        path.chmod(0o600)
        path.write_bytes(b"{}")
    run = machine.exec("--steps", "10")
    assert run.exit_code() == Exit.FAILED, run.text
    assert "fresh" not in run.lines
    assert "no checkpoint of run t" in run.text


def test_wrong_location(machine: Machine) -> None:
    """A store that can't be is a wrong setting: one line that says what to do, and nothing is started."""
    file = Path(machine.directory / "file")
    file.write_text("")
    run = machine.exec("--steps", "5", options=("--store", str(file / "below")))
    assert run.exit_code() in {Exit.CONFIG, Exit.FAILED}, run.text
    assert "Traceback" not in run.text
    assert "fresh" not in run.lines


def test_a_claim_removed_from_outside_does_not_stop_the_training(machine: Machine) -> None:
    """Whoever deletes the claim of a life at work is told of, and the training goes on and is saved."""
    run = machine.exec("--steps", "100000")
    run.wait_line("saved step 10 ")
    claim = machine.store / "t" / "lives" / "000001.json"
    body = claim.read_bytes()
    claim.unlink()
    run.wait_line("warning: the claim of life 1 was removed by somebody; it is put back")
    assert claim.read_bytes() == body
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_claims_removed_between_two_lives(machine: Machine) -> None:
    """The next life takes a number above every checkpoint, and resumes from the newest."""
    assert machine.exec("--steps", "25").exit_code() == Exit.FINISHED
    shutil.rmtree(machine.store / "t" / "lives")
    run = machine.exec("--steps", "30")
    run.wait_line("life 2 of t begins")
    run.wait_line("^restored 25 from")
    assert run.exit_code() == Exit.FINISHED, run.text
