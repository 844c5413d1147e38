"""``outlive doctor``: before money is spent, whether this machine, bucket and job can keep the promise."""

import argparse
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from outlive_agent.cli.parser import VerbParser, add_json
from outlive_agent.exits import Exit
from outlive_agent.units import parse_duration

if TYPE_CHECKING:
    from outlive_agent.doctor.subject import Subject

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]?)i?B?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def doctor_main(argv: Sequence[str]) -> int:
    """Examine, print, and say by the exit code whether the promise can be kept."""
    args = _parser().parse_args(argv)
    from outlive_agent.cli.doctor_page import looking, print_report, report_json
    from outlive_agent.cli.output import Printer, emit_json
    from outlive_agent.doctor import examination

    subject = _subject(args)
    before = signal.signal(signal.SIGTERM, _stop)  # so that the bucket is left clean then too
    try:
        with looking() as tell:
            seconds = examination.SECONDS if args.within is None else args.within.total_seconds()
            report = examination.Examination(subject, os.environ, seconds=seconds, tell=tell).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    if args.json:
        emit_json(report_json(subject, report))
    else:
        print_report(Printer(), subject, report)
    bad = report.level == "problem" or (args.strict and report.level == "warning")
    return Exit.FAILED if bad else Exit.FINISHED


def _subject(args: argparse.Namespace) -> "Subject":
    """What to look at. ``ConfigError`` with all that is wrong in the settings."""
    from outlive_agent.config import for_doctor
    from outlive_agent.doctor.checkpoint import given_state
    from outlive_agent.doctor.subject import Subject

    state = None if args.state is None else given_state(args.state)
    window = None if args.window is None else args.window.total_seconds()
    if args.job is None:
        config, run = for_doctor(args, os.environ)
        if args.provider:
            config = replace(config, reclaim=replace(config.reclaim, provider=args.provider))
        return Subject(config=config, run=run, state=state, window_seconds=window)
    from outlive_agent.bootstrap.job import load

    job = load(args.job)
    config = job.config
    if args.provider:
        config = replace(config, reclaim=replace(config.reclaim, provider=args.provider))
        job = replace(job, config=config)
    return Subject(
        config=config,
        run=config.run,
        job=job,
        job_directory=args.job.parent,
        state=state,
        window_seconds=window,
    )


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _parser() -> VerbParser:
    from outlive_agent.settings.values import PROVIDERS

    parser = VerbParser(
        "doctor",
        "Say before money is spent whether this machine, bucket and job can keep the promise. Sends up to\n"
        "256 MB to the store and reads it back, in a corner of its own that is empty again afterwards.",
        codes={Exit.FINISHED: "it can be kept, perhaps with warnings", Exit.FAILED: "it can't be kept"},
        examples=[
            ("outlive doctor", "this machine, with its configuration"),
            ("outlive doctor --run gpt --store s3://my-bucket/runs", "and this bucket"),
            ("outlive doctor --state 14GB --provider aws", "a state of which nothing is saved yet"),
            ("outlive doctor job.yaml", "a job file and its store, from a desk"),
        ],
    )
    parser.add_argument(
        "job", nargs="?", type=Path, metavar="JOB", help="a job file; the machine is not looked at"
    )
    parser.add_argument("--state", type=_size, metavar="SIZE", help="what a checkpoint will hold: 14GB")
    parser.add_argument("--provider", choices=PROVIDERS, metavar="NAME", help=", ".join(PROVIDERS))
    parser.add_argument(
        "--window",
        type=_span,
        metavar="DURATION",
        help="how long a reclaim is announced ahead, if you know better",
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings too")
    parser.add_argument("--within", type=_span, metavar="DURATION", help="in all: 20s")
    place = parser.add_argument_group(
        "where (a flag wins over its variable, that over the configuration file)"
    )
    place.add_argument("--run", metavar="NAME", help="the run, for the size of what it saves ($OUTLIVE_RUN)")
    place.add_argument(
        "--store", metavar="LOCATION", help="s3://bucket/prefix, or a directory ($OUTLIVE_STORE)"
    )
    place.add_argument("--endpoint", metavar="URL", help="the S3 API's address ($OUTLIVE_S3_ENDPOINT)")
    place.add_argument("--region", metavar="NAME", help="the store's region ($OUTLIVE_S3_REGION)")
    place.add_argument(
        "--config", metavar="FILE", help="instead of /etc/outlive/outlive.yaml ($OUTLIVE_CONFIG)"
    )
    add_json(parser)
    return parser


def _span(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; write {error}") from None


def _size(text: str) -> int:
    """``14GB``, ``800 MB``; GiB counts as GB times 1.07."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 800MB, 14GB or 14GiB")
    base = 1024 if "i" in text.lower() else 1000
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])
