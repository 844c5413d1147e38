"""``outlive export``: a checkpoint's model as a safetensors file, for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlive_agent.cli.output import Printer, count_text, emit_json
from outlive_agent.cli.parser import VerbParser, add_store_options
from outlive_agent.exits import Exit
from outlive_agent.units import bytes_text

if TYPE_CHECKING:
    from outlive_agent.artifact import Artifact


def export_main(argv: Sequence[str]) -> int:
    """Write the file, and say how to load it."""
    args = _parser().parse_args(argv)
    from outlive.errors import ConfigError
    from outlive.store.newest import read_manifest  # late, as all that knows the store: --help needs none
    from outlive_agent.artifact import choose, write
    from outlive_agent.cli.places import open_for
    from outlive_agent.cli.progress import progress
    from outlive_agent.cli.target import find_checkpoint

    if args.file.exists() and not args.force:
        raise ConfigError(f"{args.file} is there already", hint="choose another name, or say --force")
    store = open_for(args)
    manifest = read_manifest(store, args.target.run, find_checkpoint(store, args.target))
    artifact = choose(store, manifest, only=args.only)
    try:
        with progress(f"exporting step {manifest.step:,} of {manifest.run}") as tell:
            write(store, artifact, args.file, progress=tell)
    except OSError as error:
        raise ConfigError(f"{args.file} can't be written: {error.strerror}") from error
    if args.json:
        emit_json(_json(artifact, args.file))
    else:
        _say(Printer(), artifact, args.file, whole=not args.only)
    return Exit.FINISHED


def _parser() -> VerbParser:
    parser = VerbParser(
        "export",
        "Write a checkpoint's model to one safetensors file: no optimizer, no random generators.\n"
        "A checkpoint is for resuming; this is what you hand on.",
        examples=[
            ("outlive export gpt gpt.safetensors", "the newest checkpoint's model"),
            ("outlive export gpt@1200 gpt.safetensors", "that of step 1200"),
            ("outlive export gpt lora.safetensors --only 'net/*lora*'", "what fits the pattern"),
        ],
    )
    from outlive_agent.cli.target import target

    parser.add_argument(
        "target", type=target, metavar="RUN[@STEP]", help="gpt, gpt@1200, or gpt@3-1200 (life 3)"
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="where to: it must not be there yet")
    only = "tensors to take, as 'outlive show --tensors' names them; may be given more than once"
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help=only)
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    add_store_options(parser)
    return parser


def _say(printer: Printer, artifact: "Artifact", file: Path, *, whole: bool) -> None:
    manifest = artifact.manifest
    printer.say(
        f"{file}: {count_text(len(artifact.tensors), 'tensor')} of {', '.join(artifact.objects)}, "
        f"{bytes_text(artifact.bytes)}, from step {manifest.step:,} of {manifest.run}"
    )
    if whole and len(artifact.objects) == 1:
        printer.say(f'Load it with: model.load_state_dict(safetensors.torch.load_file("{file}"))')


def _json(artifact: "Artifact", file: Path) -> dict[str, object]:
    return {
        "file": str(file),
        "run": artifact.manifest.run,
        "life": artifact.manifest.life,
        "step": artifact.manifest.step,
        "objects": list(artifact.objects),
        "tensors": list(artifact.tensors),
        "bytes": artifact.bytes,
    }
