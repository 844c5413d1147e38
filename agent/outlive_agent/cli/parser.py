"""One parser a verb, all of one shape: examples below the options, mistakes told like every other error."""

import argparse
import difflib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from outlive_agent.exits import Exit

_PLACES = "default: $OUTLIVE_STORE, else the store in the configuration file, else ~/.local/share/outlive"

CODES: Mapping[int, str] = {
    Exit.FINISHED: "done",
    Exit.FAILED: "it could not be done, and the error says why",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIG: "a setting is wrong: trying again will not help",
}
"""What every verb exits with."""
_WIDTH = 80


class VerbParser(argparse.ArgumentParser):
    """The arguments of one verb. ``examples`` are pairs of a command line and what it does.

    ``codes`` says what a number means that this verb exits with, where it means more than ``CODES`` say.
    """

    def __init__(
        self,
        verb: str,
        summary: str,
        *,
        examples: Sequence[tuple[str, str]] = (),
        codes: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        told = sorted({**CODES, **codes}.items())
        shown = _columns("exit codes", [(str(int(code)), meaning) for code, meaning in told])
        if examples:
            shown += "\n\n" + _columns("examples", examples)
        super().__init__(
            prog=f"outlive {verb}",
            description=textwrap.fill(" ".join(summary.split()), _WIDTH),
            epilog=shown,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in the command line, and what was perhaps meant."""
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        near = difflib.get_close_matches(unknown.partition("=")[0], self._option_string_actions, n=1)
        hint = f"{near[0]}, or {self.prog} --help" if near and message != unknown else f"{self.prog} --help"
        print(f"Error: {message}\nTry:   {hint}", file=sys.stderr)
        raise SystemExit(Exit.USAGE)


def _columns(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Two columns; where that is wider than a terminal, what is on the right goes below."""
    width = max(len(left) for left, _ in rows)
    if max(width + len(right) for _, right in rows) + 4 <= _WIDTH:
        lines = [f"  {left:<{width}}  {right}".rstrip() for left, right in rows]
    else:
        lines = [line for left, right in rows for line in (f"  {left}", f"      {right}") if line.strip()]
    return "\n".join([f"{title}:", *lines])


def add_run(parser: argparse.ArgumentParser) -> None:
    """The run that the verb is about."""
    from outlive_agent.cli.target import run_name  # late: --help needs nothing that knows the store

    parser.add_argument("run", type=run_name, metavar="RUN", help="its name, as 'outlive ls' shows it")


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Where to look; the same for every verb that reads a store."""
    places = parser.add_argument_group("where")
    places.add_argument("--store", metavar="LOCATION", help=f"s3://bucket/prefix or a directory ({_PLACES})")
    places.add_argument("--endpoint", metavar="URL", help="the S3 API's address ($OUTLIVE_S3_ENDPOINT)")
    places.add_argument("--region", metavar="NAME", help="the store's region ($OUTLIVE_S3_REGION)")
    places.add_argument("--config", metavar="FILE", help="instead of /etc/outlive/outlive.yaml")
    add_json(places)


def add_json(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def add_exec_options(parser: argparse.ArgumentParser) -> None:
    """The settings that ``outlive exec`` takes as flags; :func:`outlive_agent.config.for_exec` reads them."""
    group = parser.add_argument_group(
        "settings (a flag wins over its variable, that over the configuration file)"
    )
    for flag, metavar, purpose in _EXEC_OPTIONS:
        group.add_argument(flag, metavar=metavar, help=purpose, type=int if metavar == "COUNT" else str)


_EXEC_OPTIONS = (
    ("--config", "FILE", "a configuration file ($OUTLIVE_CONFIG)"),
    ("--run", "NAME", "the run's name, by default directory-script ($OUTLIVE_RUN)"),
    ("--store", "LOCATION", "s3://bucket/prefix, or a directory: ~/.local/share/outlive ($OUTLIVE_STORE)"),
    ("--endpoint", "URL", "the S3 API's address ($OUTLIVE_S3_ENDPOINT)"),
    ("--region", "NAME", "the store's region ($OUTLIVE_S3_REGION)"),
    ("--every", "INTERVAL", "how often to save: auto, 30s, '200 steps' ($OUTLIVE_EVERY)"),
    ("--keep", "COUNT", "how many of the newest checkpoints stay: 3"),
    ("--restarts", "COUNT", "how many crashes in a row are answered by a restart: 0 by hand"),
    ("--on-notice", "COMMAND", "a line for the shell, run when a reclaim is announced (README: Hooks)"),
    ("--on-saved", "COMMAND", "the same, after each save"),
    ("--on-end", "COMMAND", "the same, when the life ends"),
    ("--stop-grace", "DURATION", "how long the command may take to stop once asked: 30s"),
)
