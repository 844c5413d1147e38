"""The last save against a store that is gone: the wait ends in time, in a few lines, and tells the loss."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fakes.agents import TRAINER, Exec, Machine
from fakes.proxy import Exchange, Proxy, Request, proxied
from fakes.servers import shared
from outlive.errors import ConfigError
from outlive_agent.drain import HURRIED_SECONDS, STALLED_SECONDS, Drain, stop_window
from outlive_agent.exits import Exit


def test_patience_without_a_deadline() -> None:
    """Where nothing is known it waits a minute for a byte, and begins anew with each."""
    drain = Drain()
    drain.observe((1, 0), 100)
    drain.begin(150)
    assert drain.why(150 + STALLED_SECONDS - 1, None) == ""
    drain.observe((1, 10), 200)
    assert drain.why(200 + STALLED_SECONDS - 1, None) == ""
    assert (drain.quiet(209), drain.quiet(210)) == (False, True)
    assert drain.why(200 + STALLED_SECONDS, None) == "nothing has reached the store for 1 min"


def test_patience_with_a_deadline() -> None:
    """A known deadline is used to its end, and passed only while bytes move."""
    drain = Drain()
    drain.begin(0)
    for hard in (True, False):
        assert drain.why(1000, 2000, hard=hard) == ""
        assert drain.why(1998, 2000, hard=hard) == "the time that was announced is over"
    drain.observe((1, 10), 1998)
    assert drain.why(2002, 2000) == ""
    assert drain.why(2003, 2000) != ""


def test_deadline_that_is_over() -> None:
    """A save that begins after its deadline is tried for a moment, unless a SIGKILL is certain."""
    drain = Drain()
    drain.begin(100)
    assert drain.why(104, 90) == ""
    assert drain.why(105, 90) != ""
    assert drain.why(100, 90, hard=True) != ""


def test_second_signal_shortens() -> None:
    """A second SIGTERM leaves ten seconds, and counts once."""
    drain = Drain()
    drain.begin(0)
    assert drain.hurry(5)
    assert not drain.hurry(6)
    assert drain.why(5 + HURRIED_SECONDS - 1, 1000) == ""
    assert drain.why(5 + HURRIED_SECONDS, 1000) == "no more time is left"


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("30", 30.0), ("30s", 30.0), ("2 min", 120.0)])
def test_stop_window(text: str, seconds: float | None) -> None:
    """A pod says its grace in seconds, or as a duration."""
    assert stop_window({"OUTLIVE_STOP_WINDOW": text}) == seconds


def test_stop_window_that_is_none() -> None:
    """What can't be understood is refused, rather than taken for no limit."""
    with pytest.raises(ConfigError, match="OUTLIVE_STOP_WINDOW"):
        stop_window({"OUTLIVE_STOP_WINDOW": "soon"})


@contextmanager
def _vanishing(machine: Machine, **environ: str) -> Iterator[tuple[Exec, Proxy, threading.Event]]:
    """A training with checkpoints in a bucket whose server answers nothing any more once the event is set."""
    server = shared("moto")
    gone = threading.Event()
    over = threading.Event()

    def fault(request: Request) -> Callable[[Exchange], None] | None:
        def say_nothing(exchange: Exchange) -> None:
            over.wait(30)
            exchange.reset()

        return say_nothing if gone.is_set() else None

    with proxied(server.endpoint, fault) as proxy:
        run = machine.exec(
            options=("--store", server.location(machine.directory.name), "--every", "20 steps"),
            command=[*TRAINER, "--steps", "100000"],
            environ={**server.environment(), "OUTLIVE_S3_ENDPOINT": proxy.endpoint, **environ},
        )
        run.wait_line("saved step .*interval")
        try:
            yield run, proxy, gone
        finally:
            over.set()


def _few_lines(run: Exec, begin: str) -> None:
    lines = run.lines[next(number for number, line in enumerate(run.lines) if begin in line) :]
    own = [line for line in lines if line.startswith("outlive: ")]
    assert len(own) <= 8, run.text
    assert "does not stop" not in run.text
    assert "Traceback" not in run.text


def test_window_bounds_the_drain(machine: Machine) -> None:
    """With a stop window of six seconds the agent has said what is lost before it is killed."""
    with _vanishing(machine, OUTLIVE_STOP_WINDOW="6s") as (run, _, gone):
        gone.set()
        run.signal(signal.SIGTERM)
        assert run.exit_code() == Exit.SAVE_FAILED, run.text
        run.wait_line("SIGTERM: saving and stopping, 6.0 s left, a last save needs .* margin")
        run.wait_line("giving up the save of step .*: the time that was announced is over")
        run.wait_line("stopped, but the last save failed, .* steps? lost")
        _few_lines(run, "SIGTERM")


def test_second_interrupt_ends_the_drain(machine: Machine) -> None:
    """Once nobody trains, a second Ctrl-C gives up the save under way at once."""
    with _vanishing(machine) as (run, _, gone):
        gone.set()
        run.signal(signal.SIGINT)
        run.wait_line("finishing the save of step")
        run.insist(signal.SIGINT, "giving up the save of step .*: interrupted again")
        assert run.exit_code() == Exit.SAVE_FAILED, run.text
        _few_lines(run, "SIGINT")


def test_default_is_said(machine: Machine) -> None:
    """Where no deadline is known it is told when the save will be given up."""
    with _vanishing(machine) as (run, _, gone):
        gone.set()
        run.signal(signal.SIGTERM)
        run.wait_line("nothing reaches the store; giving up in (49|50) s")
        run.signal(signal.SIGINT)
        assert run.exit_code() == Exit.SAVE_FAILED, run.text


def test_second_sigterm_leaves_some_time(machine: Machine) -> None:
    """A second SIGTERM leaves the save ten seconds; a store that comes back in them loses nothing."""
    with _vanishing(machine) as (run, _, gone):
        gone.set()
        run.signal(signal.SIGTERM)
        run.wait_line("finishing the save of step")
        run.insist(signal.SIGTERM, "SIGTERM again: the save under way gets 10 s more")
        run.insist(signal.SIGTERM, "giving up the save of step .*: SIGTERM again")
        assert run.exit_code() == Exit.SAVE_FAILED, run.text
