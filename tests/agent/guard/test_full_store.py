"""A store without room, in which most is garbage that waits for its day."""

import signal
from collections.abc import Callable

from fakes.agents import Machine
from fakes.proxy import Exchange, Request, proxied
from fakes.servers import shared
from outlive_agent.exits import Exit


class Full:
    """Takes so many chunks, and more once it was full and some were removed: manifests first, then chunks."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.removals = 0

    def __call__(self, request: Request) -> "Callable[[Exchange], None] | None":
        chunk = "/chunks/" in request.path
        one = request.method == "DELETE" and (chunk or "/checkpoints/" in request.path)
        if self.room < 0 and (one or request.method == "POST"):
            self.removals += 1
        if request.method != "PUT" or not chunk or self.removals >= 2:
            return None
        self.room -= 1
        return None if self.room >= 0 else _refuse


def _refuse(exchange: Exchange) -> None:
    exchange.read()
    exchange.refuse(507, "")


def test_a_full_store_does_not_cost_the_last_save(machine: Machine) -> None:
    """Its garbage goes although it is young, and the save that found no room is made after all."""
    server = shared("moto")
    with proxied(server.endpoint, Full(room=8)) as proxy:
        environ = {**server.environment(), "OUTLIVE_S3_ENDPOINT": proxy.endpoint}
        options = ("--store", server.location(machine.directory.name), "--every", "10 steps", "--keep", "1")
        run = machine.exec("--steps", "100000", options=options, environ=environ)
        run.wait_line("warning: step .* was not saved ")
        run.signal(signal.SIGTERM)
        run.wait_line("pruned 0 old checkpoints, .* since the store is full")
        assert run.exit_code() == Exit.RESUME, run.text
        run.wait_line("the run stopped and is saved")
