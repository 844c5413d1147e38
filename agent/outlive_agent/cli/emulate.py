"""``outlive emulate``: a metadata server to rehearse with."""

import argparse
import threading
from collections.abc import Sequence
from datetime import timedelta

from outlive.errors import ConfigError
from outlive_agent.cli.parser import VerbParser
from outlive_agent.exits import Exit
from outlive_agent.units import parse_duration


def emulate_main(argv: Sequence[str]) -> int:
    """Serve until interrupted."""
    from outlive_agent.emulate.answers import ANSWERS
    from outlive_agent.emulate.server import Emulator
    from outlive_agent.emulate.stage import Stage

    options = _parser(sorted(ANSWERS)).parse_args(argv)
    stage = Stage(kind=options.kind)
    try:
        emulator = Emulator(options.provider, address=(options.bind, options.port), stage=stage)
    except OSError as error:
        raise ConfigError(
            f"{options.bind}:{options.port}: {(error.strerror or str(error)).lower()}",
            hint="choose another --port",
        ) from None
    with emulator:
        emulator.faults = options.fault
        print(emulator.url, flush=True)
        given = f"OUTLIVE_PROVIDER={options.provider} OUTLIVE_METADATA_ENDPOINT={emulator.url}"
        print(f"{given} outlive exec -- ...", flush=True)
        stage.play(
            notice_in=options.notice_in.total_seconds(),
            window=options.window.total_seconds(),
            then=options.then,
            closing=emulator.closing,
        )
        threading.Event().wait()
    return Exit.FINISHED


def _parser(providers: Sequence[str]) -> VerbParser:
    parser = VerbParser(
        "emulate",
        "A provider's metadata server, to rehearse a reclaim with: it announces one, and fails as told.",
        examples=[
            ("outlive emulate aws --notice-in 30s --window 120s", "a spot interruption"),
            ("outlive emulate azure --then cancel", "one that is called off"),
            ("outlive emulate aws --fault 401-once --fault token-503:3", "from a server in trouble"),
        ],
    )
    parser.add_argument("provider", choices=providers, metavar="PROVIDER", help=", ".join(providers))
    parser.add_argument(
        "--notice-in",
        type=_span,
        default=timedelta(seconds=30),
        metavar="DURATION",
        help="until it announces: 30s",
    )
    parser.add_argument(
        "--window",
        type=_span,
        default=timedelta(seconds=120),
        metavar="DURATION",
        help="until the end: 120s",
    )
    parser.add_argument(
        "--then", choices=("end", "cancel", "stay", "again"), default="end", help="what follows the window"
    )
    parser.add_argument(
        "--kind", default="", help="another announcement, such as hibernate, rebalance, Freeze or migrate"
    )
    parser.add_argument(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        help="503, 401-once, hang:3, token-reset, garbage ...",
    )
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="where it listens: 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="any that is free")
    return parser


def _span(text: str) -> timedelta:
    if text in {"0", "0s", "now"}:
        return timedelta()
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; write {error}") from None


def _fault(text: str) -> object:
    from outlive_agent.emulate.faults import parse_fault

    try:
        return parse_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no fault; write {error}") from None
