"""A life chooses what to resume from only once it is claimed."""

import signal
from collections.abc import Callable

from fakes.agents import Machine
from fakes.checkpoints import begin, snapshot
from fakes.proxy import Exchange, Request, proxied
from fakes.servers import shared
from outlive.objects.credentials import Credentials
from outlive.objects.location import open_store


def test_what_is_acknowledged_until_the_claim_is_resumed_from(machine: Machine) -> None:
    """The machine before it saves at the last moment, when the next one has looked at everything it may."""
    server = shared("moto")
    location = server.location(machine.directory.name)
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    older = begin(open_store(location, credentials=keys, endpoint=server.endpoint), "t")
    older.commit(snapshot(1, b"one"))

    def save_before(exchange: Exchange) -> None:
        older.commit(snapshot(2, b"two"))
        exchange.answer(exchange.forward(exchange.read()))

    def at_the_claim(request: Request) -> "Callable[[Exchange], None] | None":
        claims = request.method == "PUT" and "/lives/000002.json" in request.path
        return save_before if claims else None

    with proxied(server.endpoint, at_the_claim) as proxy:
        environ = {**server.environment(), "OUTLIVE_S3_ENDPOINT": proxy.endpoint}
        run = machine.exec(options=("--store", location), command=["sleep", "60"], environ=environ)
        restored = run.wait_line("restored step")
        assert "restored step 2 (life 1)" in restored
        run.signal(signal.SIGTERM)
        run.exit_code()
        assert proxy.hit == 1
