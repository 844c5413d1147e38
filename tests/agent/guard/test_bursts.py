"""A signal that is heard twice is one."""

import signal
import sys

from fakes.agents import TRAINER, Machine
from outlive_agent.bursts import BURST_SECONDS, Bursts
from outlive_agent.exits import Exit


def test_what_is_heard_twice_counts_once_and_what_is_said_again_counts() -> None:
    """However often it comes within half a second; another signal, or the same later, is another wish."""
    bursts = Bursts()
    late = BURST_SECONDS + 0.01
    heard = [
        (15, 0.0),
        (15, 0.001),
        (15, BURST_SECONDS - 0.01),
        (15, late),
        (2, late),
        (15, late),
        (15, late),
    ]
    assert [bursts.echo(*each) for each in heard] == [False, True, True, False, False, False, True]


def test_timeout_costs_no_step(machine: Machine) -> None:
    """GNU ``timeout`` sends its SIGTERM to the agent and once more to all its group: that hurries nobody."""
    agent = [sys.executable, "-m", "outlive_agent", "exec", "--store", str(machine.store), "--run", "t"]
    run = machine.start(["timeout", "600", *agent, "--", *TRAINER, "--steps", "100", "--pause", "0.2"])
    run.wait_line("training: step 1 ")
    run.signal(signal.SIGTERM)  # it hands it on as it would its own
    assert run.exit_code() in {Exit.RESUME, -signal.SIGTERM}, run.text
    run.wait_line("SIGTERM: saving and stopping")
    run.wait_line("the run stopped and is saved")
    assert "again" not in run.text.replace("start it again", "")
