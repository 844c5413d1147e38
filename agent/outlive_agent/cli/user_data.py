"""``outlive user-data``: from a job file to the text that is pasted when a machine is created."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.errors import ConfigError
from outlive_agent.cli.parser import VerbParser
from outlive_agent.exits import Exit

if TYPE_CHECKING:
    from outlive_agent.bootstrap.job import Job
    from outlive_agent.bootstrap.plan import Archive
    from outlive_agent.bootstrap.render import Secrets

_EXAMPLES = (
    ("outlive user-data --example > job.yaml", "a job file to start from"),
    ("outlive user-data job.yaml", "look at it: on a terminal the keys are not shown"),
    ("outlive user-data job.yaml -o user-data.yaml", "the real one, in a file that only you can read"),
    ("doctl compute droplet create gpu --user-data-file user-data.yaml ...", ""),
)


def parser() -> VerbParser:
    """The arguments of ``outlive user-data``."""
    made = VerbParser(
        "user-data",
        "Make the cloud-init text for a new machine. It installs everything, resumes the run and trains on.",
        examples=_EXAMPLES,
    )
    made.add_argument("job", metavar="JOB", nargs="?", type=Path, help="the job file")
    made.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write it to FILE, readable by you alone"
    )
    made.add_argument("--show-secrets", action="store_true", help="show the keys on a terminal too")
    made.add_argument(
        "--compress",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: only if it is too large for the provider",
    )
    made.add_argument(
        "--example", action="store_true", help="print a job file with everything that can stand in one"
    )
    return made


def user_data_main(argv: list[str]) -> int:
    """Run the verb."""
    from outlive_agent.bootstrap import job as jobs
    from outlive_agent.bootstrap.render import collect, render
    from outlive_agent.bootstrap.size import fit
    from outlive_agent.bootstrap.templates import text_of

    options = parser()
    arguments = options.parse_args(argv)
    if arguments.example:
        print(text_of("cloud-init/job.yaml"), end="")
        return Exit.FINISHED
    if arguments.job is None:
        options.error("the job file is missing")
    job = jobs.load(arguments.job)
    secrets = collect(job, os.environ)
    for note in _notes(job, secrets):
        _say(note)
    hidden = arguments.output is None and sys.stdout.isatty() and not arguments.show_secrets
    archive = _archive(job, secrets, base=arguments.job.parent, upload=not hidden)
    text = fit(render(job, secrets, archive=archive), job.provider, compress=arguments.compress)
    if hidden:
        print(render(job, secrets.masked(), archive=archive), end="")
        _say(f"the keys are not shown. The real one: outlive user-data {arguments.job} -o user-data.yaml")
    elif arguments.output is None:
        print(text, end="")
    else:
        _write(arguments.output, text)
        _say(f"{arguments.output} holds the keys: don't commit it, remove it when the machine is there")
    return Exit.FINISHED


def _notes(job: "Job", secrets: "Secrets") -> list[str]:
    """What is allowed but may surprise."""
    from outlive_agent.bootstrap.job import Repository
    from outlive_agent.bootstrap.package import doubt

    notes = [note] if (note := doubt(job.package)) else []
    source = job.training.source
    if isinstance(source, Repository) and len(source.ref) != 40:
        where = "the default branch" if source.ref == "HEAD" else source.ref
        notes.append(
            f"{where} may move, and the next machine run other code: put a commit in training.repository.ref"
        )
    if secrets.keys and secrets.keys.session_token:
        notes.append("these keys are temporary: a machine that comes after they expired can't resume")
    if job.training.metadata:
        notes.append("training.metadata: what may ask the metadata server can read the keys in the user data")
    return notes


def _archive(job: "Job", secrets: "Secrets", *, base: Path, upload: bool) -> "Archive | None":
    """Where the archive lies, if the job names a file here. Equal files are the same object."""
    source = job.training.source
    if not isinstance(source, str) or "://" in source:
        return None
    from outlive.objects.sealed import find_seal
    from outlive_agent.bootstrap.archive import archive_key, upload_archive

    file = base / Path(source).expanduser()
    key = archive_key(job.config.run, file)
    if upload:
        upload_archive(job.config.store, secrets.keys, file, key=key, seal=find_seal(secrets.seal))
        _say(f"{file.name} is in the store")
    from outlive_agent.bootstrap.plan import Archive

    return Archive(key=key)


def _write(path: Path, text: str) -> None:
    """A file of our own, private before anything is in it."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: {(error.strerror or str(error)).lower()}", hint="give another with --output"
        ) from None


def _say(text: str) -> None:
    print(f"Note:  {text}", file=sys.stderr)
