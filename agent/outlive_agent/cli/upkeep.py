"""The verbs that look after a store: ``verify`` reads every byte, ``prune`` removes what need not stay."""

import argparse
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlive_agent.cli.output import Printer, count_text, emit_json
from outlive_agent.cli.parser import VerbParser, add_run, add_store_options
from outlive_agent.exits import Exit
from outlive_agent.units import bytes_text, duration_text

if TYPE_CHECKING:
    from outlive.objects.interface import ObjectStore
    from outlive.store.prune import Plan
    from outlive.store.verify import Report


def verify_main(argv: Sequence[str]) -> int:
    """``outlive verify``: read and check every byte of a checkpoint."""
    parser = VerbParser(
        "verify",
        "Read every byte of a checkpoint and compare it with the manifest, which says what was saved.",
        codes={Exit.FINISHED: "the checkpoint is whole", Exit.FAILED: "it is damaged, or could not be read"},
        examples=[
            ("outlive verify gpt", "the newest one"),
            ("outlive verify gpt@1200", "the one of step 1200"),
            ("outlive verify gpt@3-1200", "of life 3, where several lives saved that step"),
        ],
    )
    from outlive_agent.cli.target import target

    parser.add_argument(
        "target", type=target, metavar="RUN[@STEP]", help="gpt, gpt@1200, or gpt@3-1200 (life 3)"
    )
    add_store_options(parser)
    args = parser.parse_args(argv)
    from outlive.store.newest import read_manifest  # late, as all that knows the store: --help needs none
    from outlive.store.verify import verify
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.progress import progress
    from outlive_agent.cli.target import find_checkpoint

    store = open_for(args)
    manifest = read_manifest(store, args.target.run, find_checkpoint(store, args.target))
    began = time.monotonic()
    with progress(f"verifying step {manifest.step:,} of {manifest.run}") as tell:
        report = verify(store, manifest, progress=tell)
    seconds = time.monotonic() - began
    if args.json:
        emit_json(_report_json(store, report, seconds=seconds))
    else:
        _print_report(Printer(), report, seconds=seconds)
    return Exit.FINISHED if report.ok else Exit.FAILED


def prune_main(argv: Sequence[str]) -> int:
    """``outlive prune``: show what would go, or with ``--yes`` remove it."""
    args = _prune_parser().parse_args(argv)
    from outlive.store.prune import plan_prune, prune  # late, as all that knows the store
    from outlive.store.retention import Keep
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.target import check_run

    store = open_for(args)
    keep = Keep(last=args.last, every_steps=args.every, best=args.best)
    check_run(store, args.run)
    plan = prune(store, args.run, keep) if args.yes else plan_prune(store, args.run, keep)
    if args.json:
        emit_json({"store": store.location, "removed": args.yes, **_plan_json(plan)})
    else:
        _print_plan(Printer(), plan, done=args.yes, again=_again(args))
    return Exit.FINISHED


def _prune_parser() -> VerbParser:
    parser = VerbParser(
        "prune",
        "Remove checkpoints that need not stay, and chunks (their data) that none of them names any more.\n"
        "Without --yes nothing is touched. What a machine that trains now may need stays; chunks go a day\n"
        "after their checkpoints.",
        examples=[
            ("outlive prune gpt", "show what would go if the last 3 were kept"),
            ("outlive prune gpt --last 1 --best loss", "keep the newest and the best"),
            ("outlive prune gpt --every '1000 steps' --yes", "keep one in a thousand steps too; do it"),
        ],
    )
    add_run(parser)
    parser.add_argument("--yes", action="store_true", help="remove it")
    keep = parser.add_argument_group("what stays")
    keep.add_argument("--last", type=_count, default=3, metavar="COUNT", help="so many of the newest: 3")
    keep.add_argument("--every", type=_steps, metavar="STEPS", help="one in every '1000 steps'")
    keep.add_argument("--best", metavar="METRIC", help="the lowest 'loss', or the highest: --best=-accuracy")
    add_store_options(parser)
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 upwards")
    return int(text)


def _steps(text: str) -> int:
    from outlive_agent.units import parse_steps

    try:
        return parse_steps(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def _again(args: argparse.Namespace) -> str:
    """The command line that does what was shown."""
    parts = [f"outlive prune {args.run}"]
    if args.last != 3:
        parts.append(f"--last {args.last}")
    if args.every:
        parts.append(f"--every '{args.every} steps'")
    if args.best:
        parts.append(f"--best={shlex.quote(args.best)}")
    if args.store:
        parts.append(f"--store {shlex.quote(args.store)}")
    if args.config:
        parts.append(f"--config {shlex.quote(args.config)}")
    return " ".join([*parts, "--yes"])


def _print_report(printer: Printer, report: "Report", *, seconds: float) -> None:
    manifest = report.manifest
    name = f"{manifest.run}, step {manifest.step:,} of life {manifest.life},"
    objects = count_text(report.objects, "object")
    if report.ok:
        rate = f" in {duration_text(seconds)}"
        printer.say(f"{name} is whole: {bytes_text(report.bytes)} in {objects} read and checked{rate}")
        return
    printer.say(f"{name} is damaged: {len(report.problems):,} of {objects}", style="red")
    for problem in report.problems:
        printer.say(f"  {problem.message}")
    printer.say("A restore passes it over and takes the next one; 'outlive ls' shows the order.")


def _report_json(store: "ObjectStore", report: "Report", *, seconds: float) -> dict[str, object]:
    return {
        "store": store.location,
        "run": report.manifest.run,
        "life": report.manifest.life,
        "step": report.manifest.step,
        "ok": report.ok,
        "objects": report.objects,
        "bytes": report.bytes,
        "seconds": round(seconds, 3),
        "problems": [{"key": problem.key, "message": problem.message} for problem in report.problems],
    }


def _print_plan(printer: Printer, plan: "Plan", *, done: bool, again: str) -> None:
    going, kept = len(plan.checkpoints), len(plan.kept)
    verb = "removed" if done else "would go"
    printer.say(
        f"{plan.run}: {count_text(going, 'checkpoint')} {verb}, {kept:,} {'stay' if kept != 1 else 'stays'}"
    )
    for checkpoint in plan.checkpoints:
        printer.say(f"  step {checkpoint.step:,} of life {checkpoint.life}")
    if plan.chunks:
        printer.say(f"{count_text(len(plan.chunks), 'chunk')} {verb}, {bytes_text(plan.chunk_bytes)}")
    if plan.leftovers:
        printer.say(
            f"{count_text(len(plan.leftovers), 'old event or request', 'old events and requests')} {verb}"
        )
    if plan.later_bytes:
        printer.say(
            f"{bytes_text(plan.later_bytes)} more can go a day after their checkpoints: prune again then"
        )
    for note in plan.notes:
        printer.say(f"Note: {note}", style="yellow")
    if not done and (plan.checkpoints or plan.chunks or plan.leftovers):
        printer.say("Nothing was touched. To remove it:")
        printer.command(again)


def _plan_json(plan: "Plan") -> dict[str, object]:
    return {
        "run": plan.run,
        "checkpoints": [{"life": going.life, "step": going.step} for going in plan.checkpoints],
        "kept": [{"life": stays.life, "step": stays.step} for stays in plan.kept],
        "chunks": list(plan.chunks),
        "chunk_bytes": plan.chunk_bytes,
        "leftovers": list(plan.leftovers),
        "later_bytes": plan.later_bytes,
        "notes": list(plan.notes),
    }
