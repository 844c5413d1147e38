"""``outlive export``: a checkpoint's model as a file for people, in the format that they want."""

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outlive_agent.cli.output import Printer, count_text, emit_json
from outlive_agent.cli.parser import VerbParser, add_store_options
from outlive_agent.exits import Exit
from outlive_agent.units import bytes_text

if TYPE_CHECKING:
    from outlive.objects.interface import ObjectStore
    from outlive_agent.artifact import Artifact

_BY_NAME: Final = {".pt": "torch", ".pth": "torch"}
_LOADING: Final = {
    "safetensors": 'model.load_state_dict(safetensors.torch.load_file("{file}"))',
    "torch": 'model.load_state_dict(torch.load("{file}", weights_only=True))',
    "dcp": 'torch.distributed.checkpoint.load({{"{name}": state}}, checkpoint_id="{file}")',
}


def export_main(argv: Sequence[str]) -> int:
    """Write it, and say how to load it."""
    args = _parser().parse_args(argv)
    args.format = args.format or _BY_NAME.get(args.file.suffix, "safetensors")
    from outlive.errors import ConfigError
    from outlive.store.newest import read_manifest  # late, as all that knows the store: --help needs none
    from outlive_agent.artifact import choose
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
            _write(store, artifact, args, tell)
    except OSError as error:
        raise ConfigError(f"{args.file} can't be written: {error.strerror}") from error
    if args.json:
        emit_json(_json(artifact, args))
    else:
        _say(Printer(), artifact, args)
    return Exit.FINISHED


def _write(
    store: "ObjectStore", artifact: "Artifact", args: Namespace, tell: Callable[[int, int], None]
) -> None:
    """Whole or not at all; by way of torch where it is more than safetensors as they are."""
    from outlive_agent.artifact import write
    from outlive_agent.torch_side import convert

    if args.format == "safetensors" and args.dtype is None:
        write(store, artifact, args.file, progress=tell)
        return
    folder = args.file.absolute().parent
    with tempfile.TemporaryDirectory(prefix=f".{args.file.name}.", dir=folder) as scratch:
        plain, made = Path(scratch) / "plain.safetensors", Path(scratch) / args.file.name
        write(store, artifact, plain, progress=tell)
        options = ["--format", args.format]
        options += ["--dtype", args.dtype] if args.dtype else []
        options += ["--nest", artifact.objects[0]] if len(artifact.objects) == 1 else []
        convert(["export", str(plain), str(made), *options], python=args.python)
        if args.file.is_dir():  # --force was said
            shutil.rmtree(args.file)
        made.replace(args.file)


def _parser() -> VerbParser:
    parser = VerbParser(
        "export",
        "Write a checkpoint's model to one file: no optimizer, no random generators.\n"
        "A checkpoint is for resuming; this is what you hand on.",
        examples=[
            ("outlive export gpt gpt.safetensors", "the newest checkpoint's model"),
            ("outlive export gpt@1200 gpt.safetensors", "that of step 1200"),
            ("outlive export gpt lora.safetensors --only 'net/*lora*'", "what fits the pattern"),
            ("outlive export gpt gpt.pt --dtype bfloat16", "for torch.load, in half the bytes"),
            ("outlive export gpt gpt-dcp --format dcp", "a directory for torch.distributed.checkpoint"),
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
    group = parser.add_argument_group("in another form, for which a Python with torch is needed")
    kinds = "safetensors, torch (as torch.save writes) or dcp (a directory); by default what FILE is called"
    group.add_argument("--format", choices=["safetensors", "torch", "dcp"], help=kinds)
    group.add_argument("--dtype", metavar="TYPE", help="turn its floats into this type, such as bfloat16")
    group.add_argument("--python", type=Path, metavar="PATH", help="the Python that has torch: this one")
    add_store_options(parser)
    return parser


def _say(printer: Printer, artifact: "Artifact", args: Namespace) -> None:
    manifest = artifact.manifest
    printer.say(
        f"{args.file}: {count_text(len(artifact.tensors), 'tensor')}{_of(artifact)}, "
        f"{bytes_text(artifact.bytes)}, from step {manifest.step:,} of {manifest.run}"
    )
    if not args.only and len(artifact.objects) == 1:
        how = _LOADING[args.format].format(file=args.file, name=artifact.objects[0])
        printer.say(f"Load it with: {how}")


def _json(artifact: "Artifact", args: Namespace) -> dict[str, object]:
    return {
        "file": str(args.file),
        "format": args.format,
        "run": artifact.manifest.run,
        "life": artifact.manifest.life,
        "step": artifact.manifest.step,
        "objects": list(artifact.objects),
        "tensors": list(artifact.tensors),
        "bytes": artifact.bytes,
    }


def _of(artifact: "Artifact") -> str:
    names = ", ".join(filter(None, artifact.objects))
    return f" of {names}" if names else ""
