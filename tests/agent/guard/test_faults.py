"""What a mistake of the agent's own may do."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from outlive_agent import __main__, beginning

def claim(*arguments, **more):
    raise ZeroDivisionError("nobody expected this")

beginning.claim = claim
sys.exit(__main__.main(sys.argv[1:]))
"""


def test_agent_that_lost_a_thread_ends(tmp_path: Path) -> None:
    """An agent one of whose threads died says so and ends; it does not stand there and guard nothing."""
    command = [sys.executable, "-c", PROGRAM, "exec", "--store", str(tmp_path / "store"), "--run", "faulty"]
    ended = subprocess.run(
        [*command, "--", sys.executable, "-c", ""], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "the agent's thread beginning has a fault" in ended.stderr
    assert "nobody expected this" in ended.stderr


def test_no_command_is_told() -> None:
    """``outlive exec`` without a command says that, not what else is missing."""
    command = [sys.executable, "-m", "outlive_agent", "exec"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "there is no command to run" in ended.stderr
