"""An artifact for people: chosen tensors of a checkpoint, without the rest, as one safetensors file."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from outlive.errors import ConfigError
from outlive.objects.interface import ObjectStore
from outlive.store.manifest import Manifest
from outlive.store.safetensors import DTYPES, header
from outlive.store.whole import Whole, WholeReader, read_tables, whole_tensors
from outlive_agent.contents import read_contents

_NO_MODELS: Final = frozenset(
    {"optim", "optimizer", "optimizers", "lr_scheduler", "scheduler", "dataloader", "train_state", "rng"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """What a file will hold: each tensor under the name that ``load_state_dict`` expects."""

    manifest: Manifest
    objects: tuple[str, ...]
    tensors: Mapping[str, Whole]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.tensors.values())


def choose(store: ObjectStore, manifest: Manifest, *, only: Sequence[str] = ()) -> Artifact:
    """The tensors whose path fits one of the patterns ``only``, such as ``net/encoder.*``; by default every
    tensor of the run's modules: no optimizer, no random generators.

    Where all belong to one object its name is left out, so that the file fits that module's
    ``load_state_dict``. ``ConfigError`` if nothing is chosen, or something that safetensors has no type for.
    """
    contents = read_contents(store, manifest)
    tensors = whole_tensors(read_tables(store, manifest), where=f"{manifest.run} {manifest.id}")
    if only:
        chosen = [t for t in tensors if any(fnmatchcase(t.path, pattern) for pattern in only)]
    elif contents.foreign:
        chosen = _models(tensors)
    else:
        chosen = [tensor for tensor in tensors if _is_persistent(tensor, contents.fleeting)]
    split = _split_foreign if contents.foreign else _split
    objects = tuple(dict.fromkeys(split(tensor)[0] for tensor in chosen))
    if not chosen:
        raise ConfigError(
            f"nothing of {manifest.run} at step {manifest.step:,} is chosen",
            hint=f"outlive show {manifest.run}@{manifest.step} --tensors lists what there is",
        )
    strange = [f"{entry.path} is of dtype {entry.dtype}" for entry in chosen if entry.dtype not in DTYPES]
    if strange:
        raise ConfigError(
            "\n".join([*strange[:10], "safetensors has no such type"]), hint="choose others: --only PATTERN"
        )
    single = len(objects) == 1
    names = {(split(entry)[1] if single else ".".join(filter(None, split(entry)))): entry for entry in chosen}
    return Artifact(manifest=manifest, objects=objects, tensors=names)


def write(
    store: ObjectStore, artifact: Artifact, path: Path, *, progress: Callable[[int, int], None]
) -> None:
    """Write the file, whole or not at all. In memory is a chunk, and a tensor that ranks have in pieces."""
    folder = path.absolute().parent
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_header(artifact))
            done = 0
            reader = WholeReader(store, artifact.manifest)
            for tensor in artifact.tensors.values():
                for piece in reader.content(tensor):
                    file.write(piece)
                    done += len(piece)
                    progress(done, artifact.bytes)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # mkstemp's own would keep it from everybody else
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _header(artifact: Artifact) -> bytes:
    manifest = artifact.manifest
    told = {name: (tensor.dtype, tensor.shape, tensor.bytes) for name, tensor in artifact.tensors.items()}
    origin = {"run": manifest.run, "life": str(manifest.life), "step": str(manifest.step)}
    return header(told, metadata={"format": "pt", **origin})


def _is_persistent(tensor: Whole, fleeting: Mapping[str, frozenset[str]]) -> bool:
    """Whether it belongs to a module, and to that module's ``state_dict()``."""
    name, rest = _split(tensor)
    return name in fleeting and rest not in fleeting[name]


def _models(tensors: Sequence[Whole]) -> list[Whole]:
    """What torch.distributed.checkpoint saved does not say what is what: all under ``model``, or what no
    training calls anything else.
    """
    named = [tensor for tensor in tensors if _split_foreign(tensor)[0]]
    return named or [tensor for tensor in tensors if tensor.path.partition(".")[0] not in _NO_MODELS]


def _split(tensor: Whole) -> tuple[str, str]:
    """The tracked object's name, and the tensor's within it."""
    name, _, rest = tensor.path.partition("/")
    return name, rest


def _split_foreign(tensor: Whole) -> tuple[str, str]:
    """The same of a name with dots: only ``model`` is known to be an object's."""
    rest = tensor.path.removeprefix("model.")
    return ("", rest) if rest == tensor.path else ("model", rest)
