"""Are two runs the same, bit for bit? Reads the newest checkpoint of each, and says what differs by name."""

import json
from dataclasses import dataclass
from pathlib import Path

from lives import Losses
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store.fetch import fetch
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.table import TensorTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``statements``: what is equal, for people. ``differences``: what is not; empty means bit-exact."""

    statements: list[str]
    differences: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a run: bytes of each tensor by path, and everything that is no tensor.

    Without the loops' position: after the last batch, or at the end of the epoch, is the same place.
    """

    step: int
    tensors: dict[str, bytes]
    values: object


def compare(store: Path, run: str, reference: str, losses: Losses, reference_losses: Losses) -> Comparison:
    """Compare the last checkpoints and all losses of two runs in one store."""
    opened = open_store(str(store))
    ours, theirs = _read_end(opened, run), _read_end(opened, reference)
    differences: list[str] = []
    if ours.step != theirs.step:
        differences.append(f"{run} ends at step {ours.step}, {reference} at {theirs.step}")
    names = sorted(ours.tensors.keys() | theirs.tensors.keys())
    differences += [f"tensor {n} differs" for n in names if ours.tensors.get(n) != theirs.tensors.get(n)]
    if ours.values != theirs.values:
        differences.append("values differ: RNG, scheduler or plain state")
    expected = dict(reference_losses)
    differences += [f"loss of step {step} differs" for step, loss in losses if expected.get(step) != loss]
    if {step for step, _ in losses} != set(expected):
        differences.append("the runs did not do the same steps")
    size = sum(map(len, ours.tensors.values()))
    statements = [
        f"model and optimizer: {len(names)} tensors, {size / 1e6:.1f} MB: {_verdict(differences, 'tensor')}",
        f"RNG, scheduler, values: {_verdict(differences, 'values')}",
        f"losses, {len(losses)} computed for {len(expected)} steps: {_verdict(differences, 'loss')}",
    ]
    return Comparison(statements=statements, differences=differences)


def _verdict(differences: list[str], kind: str) -> str:
    return "different" if any(difference.startswith(kind) for difference in differences) else "identical"


def _read_end(store: ObjectStore, run: str) -> _End:
    manifest = read_manifest(store, run, checkpoints(store, run)[0])
    image = bytearray(manifest.parts[0].bytes)
    (notes,) = fetch(store, manifest, memoryview(image))
    table = TensorTable.decode(notes.table)
    tensors = {t.path: bytes(image[t.offset : t.offset + t.bytes]) for t in table.tensors}
    values = json.loads(notes.values)
    del values["loops"]
    return _End(step=manifest.step, tensors=tensors, values=values)
