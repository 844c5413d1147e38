"""``outlive import``: a model from elsewhere, as the checkpoint that a new run begins with."""

import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outlive_agent.cli.output import Printer, count_text, emit_json
from outlive_agent.cli.parser import VerbParser, add_run, add_store_options
from outlive_agent.exits import Exit
from outlive_agent.units import bytes_text

if TYPE_CHECKING:
    from outlive.store.commit import Committed


def import_main(argv: Sequence[str]) -> int:
    """Commit it, and say how to go on from it."""
    args = _parser().parse_args(argv)
    from outlive.errors import ConfigError
    from outlive_agent.cli.places import open_for  # late, as all that knows the store: --help needs none
    from outlive_agent.cli.progress import progress
    from outlive_agent.importing import check_new, import_files

    if not args.source.exists():
        raise ConfigError(f"there is no {args.source}")
    if not args.name.isidentifier():
        raise ConfigError(f"--as {args.name} is no name that attach() could be given", hint="--as model")
    store = open_for(args)
    check_new(store, args.run)
    with _safetensors(args) as (files, left):
        try:
            with progress(f"importing {args.source}") as tell:
                committed = import_files(
                    store,
                    args.run,
                    files,
                    name=args.name,
                    step=args.step,
                    progress=lambda done, total, _: tell(done, total),
                )
        except OSError as error:
            raise ConfigError(f"{args.source} can't be imported: {error.strerror}") from error
    if args.json:
        emit_json(_json(args, committed, left))
    else:
        _say(Printer(), args, committed, left)
    return Exit.FINISHED


@contextmanager
def _safetensors(args: Namespace) -> Iterator[tuple[list[Path], list[str]]]:
    """The source as safetensors files, by way of torch where it is anything else; and what was left out."""
    source: Path = args.source
    from outlive.store.safetensors import is_safetensors
    from outlive_agent.torch_side import convert

    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    if (source / ".metadata").exists() or not files:
        plain = False
    else:
        plain = all(is_safetensors(file) for file in files)
    if plain and args.key is None and args.dtype is None:
        yield files, []
        return
    with tempfile.TemporaryDirectory(prefix="outlive-import-") as folder:
        target = Path(folder) / "model.safetensors"
        given = {"--key": args.key, "--dtype": args.dtype}
        options = [word for flag, value in given.items() if value for word in (flag, value)]
        said = convert(["import", str(source), str(target), *options], python=args.python)
        yield [target], [str(name) for name in said.get("left", [])]


def _parser() -> VerbParser:
    parser = VerbParser(
        "import",
        "Make a model that something else has saved the first checkpoint of a new run. Its training begins"
        " with that model; optimizer, data position and random numbers begin as the script has them.",
        examples=[
            ("outlive import gpt.safetensors gpt", "attach(model=...) of run gpt begins with it"),
            ("outlive import llama/ tune", "a directory of safetensors"),
            ("outlive import ckpt.pt tune --key model --as net", "what torch.save wrote, under its key"),
            ("outlive import checkpoints/step-900 tune --step 900", "of torch.distributed.checkpoint"),
        ],
    )
    parser.add_argument(
        "source", type=Path, metavar="SOURCE", help="safetensors, torch.save, or a DCP directory"
    )
    add_run(parser)
    group = parser.add_argument_group("what of it, and as what")
    group.add_argument("--as", dest="name", default="model", metavar="NAME", help="attach(NAME=...): model")
    group.add_argument("--key", metavar="NAME", help="where in it the model is, if it holds more")
    group.add_argument("--step", type=_step, default=0, metavar="N", help="the step to go on from: 0")
    group.add_argument("--dtype", metavar="TYPE", help="turn its floats into this type, such as float32")
    group.add_argument("--python", type=Path, metavar="PATH", help="a Python that has torch: this one")
    add_store_options(parser)
    return parser


def _step(text: str) -> int:
    from outlive.store.layout import MAX_STEP

    step = int(text)
    if not 0 <= step <= MAX_STEP:
        raise ValueError(text)
    return step


def _say(printer: Printer, args: Namespace, committed: "Committed", left: Sequence[str]) -> None:
    manifest = committed.manifest
    printer.say(
        f"run {manifest.run}: {args.source} is its checkpoint of step {manifest.step:,}, "
        f"{bytes_text(manifest.total_bytes)}"
    )
    if left:
        shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        printer.say(f"not taken along ({count_text(len(left), 'name')}): {shown}")
    printer.say(
        f"A training of that name begins with it: outlive.attach(run={manifest.run!r}, {args.name}=...)"
    )


def _json(args: Namespace, committed: "Committed", left: Sequence[str]) -> dict[str, object]:
    manifest = committed.manifest
    return {
        "run": manifest.run,
        "life": manifest.life,
        "step": manifest.step,
        "as": args.name,
        "bytes": manifest.total_bytes,
        "left": list(left),
    }
