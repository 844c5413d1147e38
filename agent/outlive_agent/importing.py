"""A checkpoint made of a model that something else has saved, for a new run to begin with."""

import json
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from outlive.errors import ConfigError, Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import probe
from outlive.store import layout
from outlive.store.commit import Committed, Committer, Image, Progress, Snapshot
from outlive.store.events import write_event
from outlive.store.lives import Identity, adopt, claim, newest_life, read_claim
from outlive.store.newest import listed
from outlive.store.safetensors import Tensor, read_header
from outlive.store.table import ALIGNMENT, TensorEntry, TensorTable

_COMMAND = ("outlive", "import")
"""What the claim of such a life says."""
_PIECE_BYTES = 16 * 1024 * 1024


def check_new(store: ObjectStore, run: str) -> None:
    """``ConfigError`` if anything of the run is there: an import must not come between its checkpoints.

    What an import has left that did not come to its end is no run yet.
    """
    if not any(True for _ in store.list(layout.run_prefix(run))):
        return
    number = newest_life(store, run)
    with suppress(NotFound, Damaged):
        if not listed(store, run) and number and read_claim(store, run, number).identity.command == _COMMAND:
            return
    raise ConfigError(
        f"there is a run {run} in {store.location} already", hint="import into a run with a new name"
    )


def import_files(
    store: ObjectStore,
    run: str,
    files: Sequence[Path],
    *,
    name: str,
    step: int,
    progress: Progress | None = None,
) -> Committed:
    """Commit the tensors in these safetensors files as module ``name`` at ``step`` of a new run."""
    tensors = _tensors(files)
    table = table_of({key: tensor for key, (_, tensor) in tensors.items()}, name=name)
    with _image(table.bytes) as image:
        for entry, (file, tensor) in zip(table.tensors, tensors.values(), strict=True):
            _copy(file, tensor, image[entry.offset : entry.offset + entry.bytes])
        snapshot = Snapshot(
            step=step,
            epoch=None,
            reason="hand",
            environment={},
            images=(
                Image(
                    table=table.encode(),
                    values=values_of(list(tensors), name=name, step=step),
                    image=image,
                ),
            ),
        )
        probe(store)
        check_new(store, run)
        life = claim(store, run, identity=Identity.here(_COMMAND))
        adopt(store, life, None)
        committed = Committer(store, life, parent=None).commit(snapshot, progress=progress)
        figures = {"step": step, "saved_step": step, "checkpoints": 1, "bytes_sent": committed.sent_bytes}
        write_event(store, life, "ended", outcome="ended", message="imported", **figures)
        return committed


def table_of(tensors: Mapping[str, Tensor], *, name: str) -> TensorTable:
    """Where each tensor will lie."""
    entries = []
    end = 0
    for key, tensor in tensors.items():
        entries.append(
            TensorEntry(
                path=f"{name}/{key}",
                dtype=tensor.dtype,
                shape=tensor.shape,
                offset=end,
                bytes=tensor.bytes,
                device="cpu",
                group=1,
            )
        )
        end += -(-tensor.bytes // ALIGNMENT) * ALIGNMENT
    return TensorTable(bytes=end, tensors=tuple(entries))


def values_of(keys: Sequence[str], *, name: str, step: int) -> bytes:
    """What goes with them. ``imported``: all that a training keeps besides begins as its script has it."""
    module = {
        "kind": "module",
        "tensors": {key: {"$tensor": number} for number, key in enumerate(keys)},
        "fleeting": [],
        "imported": True,
    }
    document = {"steps": step, "imported": True, "objects": {name: module}, "state": {}}
    return json.dumps(document, separators=(",", ":")).encode()


def _tensors(files: Sequence[Path]) -> dict[str, tuple[Path, Tensor]]:
    found: dict[str, tuple[Path, Tensor]] = {}
    for file in files:
        for key, tensor in read_header(file).items():
            if key in found:
                raise ConfigError(f"{key} is in {found[key][0].name} and in {file.name}")
            found[key] = file, tensor
    if not found:
        raise ConfigError(f"{', '.join(map(str, files))} holds no tensors")
    return found


@contextmanager
def _image(size: int) -> Iterator[memoryview]:
    """Memory for the image, behind which lies a nameless file: a model may be larger than the memory."""
    with tempfile.TemporaryFile() as file:
        os.truncate(file.fileno(), max(size, 1))
        with mmap.mmap(file.fileno(), max(size, 1)) as whole, memoryview(whole) as view, view[:size] as image:
            yield image


def _copy(file: Path, tensor: Tensor, place: memoryview) -> None:
    with file.open("rb") as source:
        source.seek(tensor.offset)
        done = 0
        while done < tensor.bytes:
            read = source.readinto(place[done : done + _PIECE_BYTES])
            if not read:
                raise Damaged(f"{file} has become shorter while it was read")
            done += read
