"""Places that can't be used, or that go away: one line and what to do, and never a lost save."""

import resource
import shutil
import signal

import pytest

from fakes.agents import Machine
from outlive_agent.exits import Exit


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        ("/proc", "/proc/outlive can't be the directory of agents"),
        ("file", "file/outlive can't be the directory of agents: not a directory"),
        ("x" * 110, "the socket's path would be longer than 107 bytes"),
    ],
)
def test_a_runtime_directory_that_can_not_be_used(machine: Machine, directory: str, says: str) -> None:
    """It is a wrong setting, told on one line with what to do; nothing was started."""
    (machine.directory / "file").touch()
    run = machine.exec(environ={"XDG_RUNTIME_DIR": str(machine.directory / directory)})
    assert run.exit_code() == Exit.CONFIG, run.text
    assert [says in line for line in run.lines] == [True, False]
    assert run.lines[1].startswith("Try:   set XDG_RUNTIME_DIR")
    assert not machine.store.exists()


@pytest.mark.parametrize("place", ["a file", "nothing", "below a file"])
def test_a_store_that_can_not_be_a_directory(machine: Machine, place: str) -> None:
    """It is refused at once, and what stands there stays as it is."""
    file = machine.directory / "file"
    file.write_bytes(b"mine")
    store = {"a file": str(file), "nothing": "", "below a file": f"{file}/store"}[place]
    run = machine.exec(options=("--store", store))
    assert run.exit_code() == Exit.CONFIG, run.text
    assert "Traceback" not in run.text
    assert file.read_bytes() == b"mine"
    assert sorted(path.name for path in machine.directory.iterdir() if path != file) in ([], ["outlive"])


def test_a_runtime_directory_that_is_removed_does_not_cost_the_last_save(machine: Machine) -> None:
    """As when a user's last login ends: what was not saved yet is saved all the same, and nothing is lost."""
    runtime = machine.directory / "runtime"
    runtime.mkdir(mode=0o700)
    run = machine.exec(
        "--steps", "100000", options=("--every", "1h"), environ={"XDG_RUNTIME_DIR": str(runtime)}
    )
    run.wait_line("outlive: training: ")
    shutil.rmtree(runtime)
    run.signal(signal.SIGTERM)
    assert run.exit_code() == Exit.RESUME, run.text
    assert "Traceback" not in run.text
    (saved,) = machine.checkpoints()
    assert machine.events(1)[-1]["saved_step"] == saved[1] > 0
    assert machine.events(1)[-1]["steps_lost"] == 0


def test_a_limit_that_a_restore_does_not_fit_into(machine: Machine) -> None:
    """Memory that the machine won't give is one line with the limit's name; the checkpoint stays as it is."""
    assert machine.exec("--steps", "5", "--bytes", "1048576").exit_code() == Exit.FINISHED

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, resource.RLIM_INFINITY))

    run = machine.exec("--steps", "10", before=small_files)
    assert run.exit_code() == Exit.FAILED, run.text
    errors = [line for line in run.lines if line.startswith("outlive: error: ")]
    assert ["LimitFSIZE" in line for line in errors] == [True]
    assert "has a fault" not in run.text
    assert machine.exec("--steps", "10", "--bytes", "1048576").exit_code() == Exit.FINISHED
