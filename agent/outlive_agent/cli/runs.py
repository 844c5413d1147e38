"""The verbs that look into a store: ``ls``, ``show`` and ``history``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.errors import ConfigError, Damaged, NoBucket
from outlive_agent.cli.output import Printer, count_text, emit_json
from outlive_agent.cli.parser import VerbParser, add_run, add_store_options
from outlive_agent.exits import Exit

if TYPE_CHECKING:
    from outlive.objects.interface import ObjectStore
    from outlive.store.runs import RunSummary

_BEGIN = "Begin with: outlive exec -- python train.py"


def ls_main(argv: Sequence[str]) -> int:
    """``outlive ls``: the runs of a store, or the checkpoints of a run."""
    parser = VerbParser(
        "ls",
        "List the runs of a store, or the checkpoints of one run, the one to resume from first.",
        examples=[
            ("outlive ls", "every run in the store"),
            ("outlive ls s3://bucket/prefix", "in another store"),
            ("outlive ls gpt", "the checkpoints of one run"),
        ],
    )
    parser.add_argument(
        "what", nargs="?", type=_what, metavar="STORE|RUN", help="s3://bucket/prefix, ./directory, or a run"
    )
    add_store_options(parser)
    args = parser.parse_args(argv)
    if args.what is None or _is_location(args.what):
        return _list_runs(args)
    return _list_checkpoints(args)


def show_main(argv: Sequence[str]) -> int:
    """``outlive show``: one checkpoint in detail."""
    parser = VerbParser(
        "show",
        "One checkpoint in detail: what it holds, where it came from, what it cost.",
        examples=[
            ("outlive show gpt", "the newest one"),
            ("outlive show gpt@1200", "the one of step 1200"),
            ("outlive show gpt@3-1200", "of life 3, where several lives saved that step"),
            ("outlive show gpt --tensors", "with every tensor"),
        ],
    )
    _add_target(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    add_store_options(parser)
    args = parser.parse_args(argv)
    from outlive.store.newest import read_manifest  # late, as all that knows the store: --help needs none
    from outlive.store.whole import read_tables
    from outlive_agent.cli.checkpoint_page import checkpoint_json, print_checkpoint
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.target import find_checkpoint
    from outlive_agent.contents import read_contents

    store = open_for(args)
    manifest = read_manifest(store, args.target.run, find_checkpoint(store, args.target))
    tables = read_tables(store, manifest)
    if args.json:
        emit_json({"store": store.location, **checkpoint_json(manifest, tables)})
    else:
        contents = read_contents(store, manifest)
        print_checkpoint(Printer(), manifest, tables, contents=contents, tensors=args.tensors)
    return Exit.FINISHED


def history_main(argv: Sequence[str]) -> int:
    """``outlive history``: the lives of a run, and what happened in them."""
    parser = VerbParser(
        "history",
        "What became of a run, life by life (a life is one machine's turn): where it resumed, how it\n"
        "ended, why it failed, what was lost.",
        examples=[
            ("outlive history gpt", "a line a life"),
            ("outlive history gpt --events", "and everything that happened, with the decisions"),
            ("outlive history gpt --clock", "and how long each change of machines took"),
        ],
    )
    add_run(parser)
    parser.add_argument("--events", action="store_true", help="tell what happened in each life")
    parser.add_argument("--clock", action="store_true", help="tell what each change of machines took")
    add_store_options(parser)
    args = parser.parse_args(argv)
    from outlive.store.sealing import check_seal
    from outlive_agent.cli.clock_page import clock_json, print_clock
    from outlive_agent.cli.lives_page import life_json, print_events, print_lives
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.target import check_run
    from outlive_agent.story import read_story

    store = open_for(args)
    check_seal(store, args.run)
    story = read_story(store, args.run)
    if not story:
        check_run(store, args.run)
    if args.json:
        lives = [life_json(life) for life in story]
        emit_json({"store": store.location, "run": args.run, "lives": lives, **clock_json(story)})
        return Exit.FINISHED
    printer = Printer()
    print_lives(printer, story)
    if args.clock:
        printer.say()
        print_clock(printer, story)
    if args.events:
        print_events(printer, story)
    return Exit.FINISHED


def _list_runs(args: argparse.Namespace) -> int:
    from outlive.store.flight import each, workers_for
    from outlive.store.runs import runs
    from outlive_agent.cli.places import open_place, settings_for
    from outlive_agent.cli.runs_page import print_runs, run_json
    from outlive_agent.config import DEFAULT_ORIGIN

    settings = settings_for(args, args.what)
    store = open_place(settings)
    seen: dict[str, RunSummary | ConfigError] = {}
    try:
        names = list(runs(store))
    except NoBucket:
        if settings.origin != DEFAULT_ORIGIN:
            raise
        names = []  # nobody has begun yet: that is no error
    each(names, lambda name: seen.update({name: _look(store, name)}), workers=workers_for(store))
    if not names and args.what is not None:
        _check_directory(store.location)
    told = [seen[name] for name in names]
    found = [summary for summary in told if not isinstance(summary, ConfigError)]
    closed = [error for error in told if isinstance(error, ConfigError)]
    if args.json:
        emit_json({"store": store.location, "runs": [run_json(summary) for summary in found]})
        return _refuse(closed)
    printer = Printer()
    if found:
        print_runs(printer, found)
        printer.say(f"{count_text(len(found), 'run')} in {store.location}")
    elif not closed:
        printer.say(f"No run in {store.location} yet.")
        printer.say(_BEGIN)
    return _refuse(closed)


def _look(store: "ObjectStore", run: str) -> "RunSummary | ConfigError":
    """How a run stands, or that it was sealed otherwise: asked only where its claim can't be read."""
    from outlive.store.runs import summarize
    from outlive.store.sealing import check_seal

    try:
        try:
            summary = summarize(store, run)
        except Damaged:
            check_seal(store, run)
            raise
        if summary.last_claim is None:
            check_seal(store, run)
    except ConfigError as error:
        return error
    return summary


def _refuse(closed: Sequence[ConfigError]) -> int:
    """After what could be read: the first of the runs that the given key, or none, does not open."""
    if not closed:
        return Exit.FINISHED
    first = closed[0]
    more = f" ({count_text(len(closed) - 1, 'run')} more can't be read either)" if len(closed) > 1 else ""
    raise ConfigError(f"{first}{more}", hint=first.hint)


def _check_directory(location: str) -> None:
    """Somebody named a directory that is not there: no store, and no run either."""
    if "://" not in location and not Path(location).is_dir():
        raise ConfigError(
            f"there is no directory {location}", hint="a run is named without '/'; outlive ls shows them all"
        )


def _list_checkpoints(args: argparse.Namespace) -> int:
    from outlive.store.sealing import check_seal
    from outlive.store.survey import survey
    from outlive_agent.cli.checkpoint_page import LIST_COLUMNS, list_json, list_rows
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.target import check_run
    from outlive_agent.units import bytes_text

    run = args.what
    store = open_for(args)
    check_seal(store, run)
    found = survey(store, run)
    if not found.written:
        check_run(store, run)
    if args.json:
        emit_json({"store": store.location, "run": run, "checkpoints": list_json(found)})
        return Exit.FINISHED
    printer = Printer()
    if found.written:
        printer.table(LIST_COLUMNS, list_rows(printer, found))
        printer.say()
    held = bytes_text(sum(info.size for info in found.chunks.values()))
    printer.say(f"{run}: {count_text(len(found.written), 'checkpoint')}, {held} stored in {store.location}")
    return Exit.FINISHED


def _add_target(parser: argparse.ArgumentParser) -> None:
    from outlive_agent.cli.target import target

    parser.add_argument(
        "target", type=target, metavar="RUN[@STEP]", help="gpt, gpt@1200, or gpt@3-1200 (life 3)"
    )


def _what(text: str) -> str:
    from outlive_agent.cli.target import run_name

    return text if _is_location(text) else run_name(text)


def _is_location(text: str) -> bool:
    return "/" in text or text.startswith((".", "~"))
