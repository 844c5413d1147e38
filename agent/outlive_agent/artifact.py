"""An artifact for people: chosen tensors of a checkpoint, without the rest, as one safetensors file."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from outlive.errors import ConfigError
from outlive.objects.interface import ObjectStore
from outlive.store.fetch import check_table, read_blob
from outlive.store.manifest import Blob, Chunk, Manifest
from outlive.store.table import TensorEntry
from outlive_agent.contents import read_contents

_DTYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
"""What safetensors has a name for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """What a file will hold: each tensor under the name that ``load_state_dict`` expects."""

    manifest: Manifest
    objects: tuple[str, ...]
    tensors: Mapping[str, TensorEntry]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.tensors.values())


def choose(store: ObjectStore, manifest: Manifest, *, only: Sequence[str] = ()) -> Artifact:
    """The tensors whose path fits one of the patterns ``only``, such as ``net/encoder.*``; by default every
    tensor of the run's modules: no optimizer, no random generators.

    Where all belong to one object its name is left out, so that the file fits that module's
    ``load_state_dict``. ``ConfigError`` if nothing is chosen, or something that safetensors has no type for.
    """
    part = manifest.parts[0]
    where = f"of {manifest.run} {manifest.id}"
    table = check_table(bytes(_read(store, manifest, part.table)), part, where=f"the tensor table {where}")
    if only:
        chosen = [e for e in table.tensors if any(fnmatchcase(e.path, pattern) for pattern in only)]
    else:
        fleeting = read_contents(store, manifest).fleeting
        chosen = [entry for entry in table.tensors if _is_persistent(entry, fleeting)]
    objects = tuple(dict.fromkeys(_split(entry)[0] for entry in chosen))
    if not chosen:
        raise ConfigError(
            f"nothing of {manifest.run} at step {manifest.step:,} is chosen",
            hint=f"outlive show {manifest.run}@{manifest.step} --tensors lists what there is",
        )
    strange = [f"{entry.path} is of dtype {entry.dtype}" for entry in chosen if entry.dtype not in _DTYPES]
    if strange:
        raise ConfigError(
            "\n".join([*strange[:10], "safetensors has no such type"]), hint="choose others: --only PATTERN"
        )
    single = len(objects) == 1
    names = {(_split(entry)[1] if single else ".".join(_split(entry))): entry for entry in chosen}
    return Artifact(manifest=manifest, objects=objects, tensors=names)


def write(
    store: ObjectStore, artifact: Artifact, path: Path, *, progress: Callable[[int, int], None]
) -> None:
    """Write the file, whole or not at all, holding no more than a chunk in memory."""
    folder = path.absolute().parent
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_header(artifact))
            done = 0
            reader = _Reader(store, artifact.manifest)
            for entry in artifact.tensors.values():
                for piece in reader.pieces(entry):
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


class _Reader:
    """Reads tensors chunk by chunk; the last chunk stays, since small tensors share one."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._chunks = manifest.parts[0].chunks
        self._held: tuple[Chunk, memoryview] | None = None

    def pieces(self, entry: TensorEntry) -> Iterator[memoryview]:
        """The tensor's bytes, in order."""
        end = entry.offset + entry.bytes
        for chunk in self._chunks:
            start = max(entry.offset, chunk.offset)
            stop = min(end, chunk.offset + chunk.bytes)
            if start < stop:
                yield self._content(chunk)[start - chunk.offset : stop - chunk.offset]

    def _content(self, chunk: Chunk) -> memoryview:
        if self._held is None or self._held[0] is not chunk:
            self._held = None
            self._held = chunk, memoryview(_read(self._store, self._manifest, chunk.blob))
        return self._held[1]


def _header(artifact: Artifact) -> bytes:
    """Length, JSON, and blanks up to a multiple of eight (the safetensors format)."""
    manifest = artifact.manifest
    members: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            "run": manifest.run,
            "life": str(manifest.life),
            "step": str(manifest.step),
        }
    }
    at = 0
    for name, entry in artifact.tensors.items():
        members[name] = {
            "dtype": _DTYPES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.bytes],
        }
        at += entry.bytes
    text = json.dumps(members, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read(store: ObjectStore, manifest: Manifest, blob: Blob) -> bytearray:
    content = bytearray(blob.bytes)
    read_blob(store, manifest.run, blob, memoryview(content))
    return content


def _is_persistent(entry: TensorEntry, fleeting: Mapping[str, frozenset[str]]) -> bool:
    """Whether it belongs to a module, and to that module's ``state_dict()``."""
    name, rest = _split(entry)
    return name in fleeting and rest not in fleeting[name]


def _split(entry: TensorEntry) -> tuple[str, str]:
    """The tracked object's name, and the tensor's within it."""
    name, _, rest = entry.path.partition("/")
    return name, rest
