"""The real agent before a slow bucket, with windows of every length: what it decides, and what is kept."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fakes.agents import TRAINER, Exec, Machine
from fakes.proxy import Exchange, Request, proxied
from fakes.servers import shared
from outlive_agent.exits import Exit

SLOW_SECONDS = 4.0
"""What a chunk takes to arrive in this bucket."""


@dataclass(slots=True)
class Slow:
    """A training whose bucket takes its time over chunks: so many seconds, or until ``gate`` is set."""

    machine: Machine
    run: Exec
    location: str
    environ: dict[str, str]
    flag: Path
    seconds: float = SLOW_SECONDS
    gated: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)

    def announce(self, window: str) -> None:
        """This machine goes away."""
        draft = self.flag.with_suffix(".new")
        draft.write_text(window)
        draft.rename(self.flag)

    def plans(self) -> list[dict[str, Any]]:
        """What was decided, in order."""
        return [event for event in self._events() if event["event"] == "plan"]

    def ended(self) -> dict[str, Any]:
        return next(event for event in self._events() if event["event"] == "ended")

    def verify(self) -> None:
        """Every byte of the newest checkpoint is there."""
        command = [sys.executable, "-m", "outlive_agent", "verify", "t", "--store", self.location]
        found = self.machine.start(command, environ=self.environ)
        assert found.exit_code() == 0, found.text

    def _events(self) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "outlive_agent", "history", "t", "--json", "--store", self.location]
        found = self.machine.start(command, environ=self.environ)
        assert found.exit_code() == 0, found.text
        events: list[dict[str, Any]] = json.loads(found.text)["lives"][0]["events"]
        return events


@pytest.fixture
def slow(machine: Machine) -> Iterator[Slow]:
    """It trains, and one save has been measured."""
    with _slow(machine) as slow:
        slow.run.wait_line("training: step")
        slow.run.signal(signal.SIGUSR1)
        slow.run.wait_line("saved step .*signal")
        yield slow


@contextmanager
def _slow(machine: Machine) -> Iterator[Slow]:
    server = shared("moto")
    location = server.location(machine.directory.name)
    flag = machine.directory / "flag"
    config = machine.directory / "o.yaml"
    config.write_text(f"reclaim: {{flag_file: {flag}}}\n")
    found: list[Slow] = []

    def fault(request: Request) -> Callable[[Exchange], None] | None:
        return take_time if request.method == "PUT" and "/chunks/" in request.path else None

    def take_time(exchange: Exchange) -> None:
        body = exchange.read()
        slow = found[0]
        slow.arrived.set()
        slow.gate.wait(30 if slow.gated else slow.seconds)
        exchange.answer(exchange.forward(body))

    with proxied(server.endpoint, fault) as proxy:
        environ = {**server.environment(), "OUTLIVE_S3_ENDPOINT": proxy.endpoint}
        run = machine.exec(
            options=("--config", str(config), "--store", location, "--every", "1h"),
            command=[*TRAINER, "--steps", "1000000", "--pause", "0.02"],
            environ=environ,
        )
        found.append(Slow(machine=machine, run=run, location=location, environ=environ, flag=flag))
        try:
            yield found[0]
        finally:
            found[0].gate.set()


def test_short(slow: Slow) -> None:
    """A window of one save and a half ends in one at the next step, and nothing is lost."""
    slow.announce("11s")
    assert slow.run.exit_code() == Exit.RESUME, slow.run.text
    first = slow.plans()[0]
    assert (first["action"], first["fits"]) == ("save and stop", True)
    assert first["upload_seconds"] >= SLOW_SECONDS
    assert slow.ended()["steps_lost"] == 0
    slow.verify()


def test_two_hours(slow: Slow) -> None:
    """Of two hours nearly all are to be spent training, with one save at once; the plan says when and why."""
    slow.announce("2h")
    slow.run.wait_line("saving now, training on for 1 h 59 min, then the last save")
    slow.run.wait_line("saved step .*notice")
    slow.run.signal(signal.SIGTERM)
    assert slow.run.exit_code() == Exit.RESUME, slow.run.text
    first = slow.plans()[0]
    assert first["train_on_seconds"] >= 0.97 * first["seconds_left"] >= 0.97 * 7100
    assert slow.ended()["steps_lost"] == 0


def test_last_responsible_moment(slow: Slow) -> None:
    """A window with room for two saves: one at once, training, then the last; each step is kept."""
    slow.seconds = 0.3
    for save in range(2, 5):
        slow.run.signal(signal.SIGUSR1)
        slow.run.wait_line("saved step .*signal", count=save)
    slow.announce("12s")
    assert slow.run.exit_code() == Exit.RESUME, slow.run.text
    slow.run.wait_line("saved step .*notice", count=2)
    assert slow.plans()[0]["action"] == "save and go on"
    assert slow.ended()["steps_lost"] == 0
    slow.verify()


def test_only_the_save_under_way(slow: Slow) -> None:
    """What is under way is committed where a new one can't fit; then one more is tried all the same."""
    slow.gated = True
    slow.arrived.clear()
    slow.run.signal(signal.SIGUSR1)
    assert slow.arrived.wait(30)
    slow.announce(f"{SLOW_SECONDS + 1.2:.1f}s")
    slow.run.wait_line("finishing the save under way")
    slow.gated, slow.seconds = False, 0.0
    slow.gate.set()
    slow.run.wait_line("saved step .*signal", count=2)
    assert slow.run.exit_code() == Exit.RESUME, slow.run.text
    assert slow.plans()[0]["action"] == "finish"
    assert slow.plans()[0]["fits"] is False
    slow.verify()


def test_no_time_at_all(slow: Slow) -> None:
    """With no second left the last checkpoint stands, one more is tried, and nothing false is claimed."""
    slow.seconds = 0.0
    slow.announce("0")
    assert slow.run.exit_code() == Exit.RESUME, slow.run.text
    first = slow.plans()[0]
    assert (first["action"], first["fits"]) == ("nothing fits", False)
    assert slow.ended()["steps_lost"] == 0, "the machine lived on"
    slow.verify()
