"""What a network or a gateway does to one request: for the proxy."""

from collections.abc import Callable

from fakes.proxy import Exchange

Fault = Callable[[Exchange], None]


def refused(status: int, code: str) -> Fault:
    """A refusal; the body was read, as most servers do."""

    def fault(exchange: Exchange) -> None:
        exchange.read()
        exchange.refuse(status, code)

    return fault


def answer_lost(exchange: Exchange) -> None:
    """The request took effect, and nobody learns it."""
    exchange.forward(exchange.read())
    exchange.reset()


def cut_on_the_way_up(exchange: Exchange) -> None:
    exchange.read(exchange.request.length // 2)
    exchange.reset()


def cut_on_the_way_down(exchange: Exchange) -> None:
    answer = exchange.forward(exchange.read())
    half = answer.body[: len(answer.body) // 2]
    exchange.answer(
        type(answer)(status=answer.status, headers=answer.headers, body=half), length=len(answer.body)
    )
    exchange.reset()


def shortened(exchange: Exchange) -> None:
    """A gateway that believes half of it to be all."""
    answer = exchange.forward(exchange.read())
    half = answer.body[: len(answer.body) // 2]
    exchange.answer(type(answer)(status=answer.status, headers=answer.headers, body=half))


def altered(exchange: Exchange) -> None:
    answer = exchange.forward(exchange.read())
    body = bytes([answer.body[0] ^ 1]) + answer.body[1:]
    exchange.answer(type(answer)(status=answer.status, headers=answer.headers, body=body))
