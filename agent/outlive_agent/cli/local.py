"""The verbs about this machine's agents and about requests to a run: ``status`` and ``reclaim``."""

import argparse
import getpass
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from outlive_agent import status
from outlive_agent.cli.output import Printer, emit_json
from outlive_agent.cli.parser import VerbParser, add_json, add_run, add_store_options
from outlive_agent.cli.status_page import print_status, status_json
from outlive_agent.exits import Exit
from outlive_agent.units import duration_text, iso_text, parse_duration

if TYPE_CHECKING:
    from outlive.store.requests import Request


def status_main(argv: Sequence[str]) -> int:
    """``outlive status``: what every agent that this user can see is doing."""
    parser = VerbParser(
        "status",
        "What the agents on this machine are doing (an agent is the process that saves a training), and\n"
        "where one was killed. Says so if there is none; that is no error.",
        examples=[("outlive status", "all of them"), ("outlive status gpt --json", "one run, for a program")],
    )
    from outlive_agent.cli.target import run_name

    parser.add_argument("run", nargs="?", type=run_name, metavar="RUN", help="only this run's")
    add_json(parser)
    args = parser.parse_args(argv)
    left = status.sweep(status.find(os.environ), os.environ)
    found = [seen for seen in left if args.run in {None, seen.status.run}]
    if args.json:
        emit_json({"agents": [status_json(one) for one in found]})
    else:
        print_status(Printer(), found, run=args.run)
    return Exit.FINISHED


def reclaim_main(argv: Sequence[str]) -> int:
    """``outlive reclaim``: put a request into the run's inbox, from anywhere."""
    args = _reclaim_parser().parse_args(argv)
    from outlive.store.events import last_event  # late, as all that knows the store: --help needs none of it
    from outlive.store.lives import newest_life
    from outlive.store.requests import put_request
    from outlive.store.sealing import check_seal
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.target import check_run
    from outlive_agent.story import ENDINGS, outcome_of

    store = open_for(args)
    check_seal(store, args.run)  # what the run's machine can't open, nobody would hear
    life = newest_life(store, args.run)
    if not life:
        check_run(store, args.run)
    by = f"{_user()}@{socket.gethostname()}"
    deadline = store.now() + args.within
    asked = put_request(store, args.run, "reclaim", life=life or None, deadline=deadline, by=by)
    if args.json:
        emit_json({"store": store.location, "run": args.run, **request_json(asked)})
        return Exit.FINISHED
    printer = Printer()
    in_time = "now" if not args.within else f"in {duration_text(args.within)}"
    printer.say(f"Asked life {life or 1} of {args.run} to save and stop: its machine goes away {in_time}.")
    outcome = outcome_of(last_event(store, args.run, life))
    if outcome is not None:
        printer.say(
            f"Note: that life has ended ({ENDINGS.get(outcome, outcome)}), so perhaps nobody hears it.",
            style="yellow",
        )
        return Exit.FINISHED
    printer.say(f"It looks every few seconds; 'outlive history {args.run}' tells what it did.")
    return Exit.FINISHED


def request_json(request: "Request") -> dict[str, object]:
    """What was put into the inbox."""
    return {
        "id": request.id,
        "kind": request.kind,
        "life": request.life,
        "deadline": iso_text(request.deadline) if request.deadline else None,
        "asked_at": iso_text(request.asked_at),
        "by": request.by,
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the number may have no name
        return str(os.getuid())


def _reclaim_parser() -> VerbParser:
    parser = VerbParser(
        "reclaim",
        "Tell a run, from anywhere, that its machine will be taken away. It trains on as long as is safe,\n"
        "saves, and stops. Only the machine that has the run now is meant: the next one goes on from there.",
        examples=[
            ("outlive reclaim gpt --in 2h", "the provider's mail says: in two hours"),
            ("outlive reclaim gpt --in now", "save and stop at the next step"),
        ],
    )
    add_run(parser)
    parser.add_argument(
        "--in", type=_within, required=True, dest="within", metavar="DURATION", help="30s, 5 min, 2h or now"
    )
    add_store_options(parser)
    return parser


def _within(text: str) -> timedelta:
    if text == "now":
        return timedelta()
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; write {error}, or now") from None
