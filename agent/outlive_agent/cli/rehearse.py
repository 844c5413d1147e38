"""``outlive rehearse``: the self-test on the user's own command."""

import argparse
import os
import random
import shutil
import signal
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.errors import ConfigError
from outlive_agent.cli.output import Printer, emit_json
from outlive_agent.cli.parser import VerbParser, add_json
from outlive_agent.exits import Exit
from outlive_agent.units import parse_duration

if TYPE_CHECKING:
    from outlive_agent.config import Config
    from outlive_agent.rehearse.rehearsal import Wanted

STEPS, SECONDS = 60, 120.0


def rehearse_main(argv: Sequence[str]) -> int:
    """Rehearse, and say what came out. Exit code 0: equal; 1: not, or it could not be rehearsed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if not options.command and not (options.config or os.environ.get("OUTLIVE_CONFIG")):
        parser.error("there is no command to rehearse")
    from outlive_agent import config as configuration
    from outlive_agent.cli.rehearse_page import Page, outcome_json
    from outlive_agent.rehearse.rehearsal import Rehearsal
    from outlive_agent.rehearse.site import Site

    config = configuration.for_exec(
        Namespace(command=options.command, config=options.config, run=options.run), os.environ
    )
    command = config.training.command if config.training is not None else ()
    if not command:
        parser.error("there is no command to rehearse")
    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}", hint="check the command after '--'")
    wanted = _wanted(options, config)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # end like Ctrl-C: legs and directory go with us
    with _scratch(options.scratch) as directory:
        site = Site(directory=directory, run=config.run, command=command)
        page = Page(Printer(), site, wanted, quiet=options.json)
        page.begin()
        outcome = Rehearsal(site, wanted, progress=page.progress, done=page.leg).run()
        if options.json:
            emit_json(outcome_json(outcome, site))
        else:
            page.end(outcome, kept=options.scratch is not None)
    return Exit.FINISHED if outcome.equal else Exit.FAILED


def _wanted(options: Namespace, config: "Config") -> "Wanted":
    from outlive_agent.rehearse.reclaim import choose
    from outlive_agent.rehearse.rehearsal import Wanted

    neither = options.steps is None and options.seconds is None
    return Wanted(
        steps=STEPS if neither else options.steps or 0,
        seconds=SECONDS if neither else options.seconds or 0.0,
        seed=random.SystemRandom().randrange(10_000) if options.seed is None else options.seed,
        way=choose(options.by, options.provider or config.reclaim.provider),
    )


@contextmanager
def _scratch(named: Path | None) -> Iterator[Path]:
    """A folder that is nobody else's: named and kept, or gone in the end."""
    if named is None:
        with tempfile.TemporaryDirectory(prefix="outlive-rehearsal-", ignore_cleanup_errors=True) as path:
            yield Path(path)
        return
    try:
        named.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = any(named.iterdir())
    except OSError as error:
        raise ConfigError(
            f"{named}: {(error.strerror or str(error)).lower()}", hint="name another --scratch"
        ) from None
    if used:
        raise ConfigError(f"{named} is not empty", hint="name a new directory with --scratch")
    yield named.absolute()


def _parser() -> VerbParser:
    parser = VerbParser(
        "rehearse",
        "Prove on your own command that a run which is taken away equals one that is not. It runs the\n"
        "command three times for a while: once untouched, once until it is reclaimed at a random moment as\n"
        "your provider would, once resumed; and compares every step, bit for bit. Your run and your bucket\n"
        "are never touched. The command runs here: what it writes itself, such as logs, it writes each time.",
        codes={Exit.FINISHED: "equal, bit for bit", Exit.FAILED: "they differ, or it could not be done"},
        examples=[
            ("outlive rehearse -- python train.py", "60 steps, or two minutes of them"),
            ("outlive rehearse --steps 500 --provider aws -- python train.py", "as a spot machine of AWS"),
            ("outlive rehearse --by sigkill --for 10min -- bash train.sh", "taken without a word"),
        ],
    )
    add = parser.add_argument
    add("--steps", type=_steps, metavar="COUNT", help=f"how long the untouched run is: {STEPS}")
    add("--for", type=_seconds, dest="seconds", metavar="DURATION", help="the same by the clock: 2min")
    add("--by", choices=("notice", "sigterm", "sigkill"), help="how it is taken away (as the provider does)")
    add("--provider", metavar="NAME", help="which one to act as: aws, gcp, ..., none (the one found here)")
    add("--seed", type=int, metavar="NUMBER", help="repeat the moments of an earlier rehearsal")
    add("--scratch", type=Path, metavar="DIR", help="keep store, diaries and logs there (a place that goes)")
    add("--run", metavar="NAME", help="the run's name, where the script asks for one ($OUTLIVE_RUN)")
    add("--config", metavar="FILE", help="take command, name and provider from there ($OUTLIVE_CONFIG)")
    add_json(parser)
    add("command", nargs="*", metavar="-- COMMAND", help="the command and its arguments")
    return parser


def _steps(text: str) -> int:
    from outlive_agent.rehearse.rehearsal import FEWEST_STEPS

    if not text.isdecimal() or int(text) < FEWEST_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r} steps: write a number, {FEWEST_STEPS} or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; write {error}") from None
