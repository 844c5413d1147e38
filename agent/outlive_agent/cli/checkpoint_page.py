"""How a checkpoint is shown: a line in ``outlive ls RUN``, a page in ``outlive show``."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from outlive.store import layout
from outlive.store.manifest import Manifest
from outlive.store.survey import Survey
from outlive.store.table import TensorTable
from outlive.store.whole import Whole, whole_tensors
from outlive_agent.cli.output import Column, Printer, count_text
from outlive_agent.contents import Contents
from outlive_agent.units import bytes_text, iso_text

LIST_COLUMNS = (
    Column(title="STEP", right=True),
    Column(title="LIFE", right=True),
    Column(title="EPOCH", right=True, priority=3),
    Column(title="SAVED"),
    Column(title="AGO", right=True, priority=1),
    Column(title="SIZE", right=True),
    Column(title="WHY", priority=2),
    Column(title="METRICS", priority=4, least=9),
    Column(title="STATE"),
)
_TENSOR_COLUMNS = (
    Column(title="TENSOR", least=24, middle=True),
    Column(title="DTYPE"),
    Column(title="SHAPE", least=12),
    Column(title="SIZE", right=True),
    Column(title="DEVICE", priority=1),
)
_GROUP_COLUMNS = (
    Column(title="STATE", least=24, middle=True),
    Column(title="TENSORS", right=True),
    Column(title="NUMBERS", right=True),
    Column(title="SIZE", right=True),
)
_PART_COLUMNS = (
    Column(title="RANK", right=True),
    Column(title="TENSORS", right=True),
    Column(title="SIZE", right=True),
    Column(title="CHUNKS", right=True),
)


def list_rows(printer: Printer, found: Survey) -> list[list[str]]:
    """One row a checkpoint, in the order in which a next life would try them."""
    rows = []
    for checkpoint, state in states(found).items():
        manifest = found.manifests.get(checkpoint)
        saved = manifest.created_at if manifest else found.written[checkpoint]
        rows.append(
            [
                f"{checkpoint.step:,}",
                str(checkpoint.life),
                "" if manifest is None or manifest.epoch is None else str(manifest.epoch),
                printer.day(saved),
                printer.age(saved),
                "" if manifest is None else bytes_text(manifest.total_bytes),
                "" if manifest is None else manifest.reason,
                "" if manifest is None else metrics_text(manifest.metrics),
                state,
            ]
        )
    return rows


def list_json(found: Survey) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "life": checkpoint.life,
            "step": checkpoint.step,
            "state": state,
            **(_manifest_json(found.manifests[checkpoint]) if checkpoint in found.manifests else {}),
        }
        for checkpoint, state in states(found).items()
    ]


def states(found: Survey) -> dict[layout.CheckpointId, str]:
    """``newest`` is what the next life resumes from. Whole by names and sizes: verify reads the bytes."""
    told: dict[layout.CheckpointId, str] = {}
    for checkpoint in [*found.order, *sorted(found.written.keys() - set(found.order), reverse=True)]:
        if checkpoint in found.unreadable:
            told[checkpoint] = "damaged manifest"
        elif checkpoint not in found.whole:
            told[checkpoint] = "damaged"
        elif checkpoint not in found.order:
            told[checkpoint] = "abandoned"
        else:
            told[checkpoint] = "whole" if "newest" in told.values() else "newest"
    return told


def print_checkpoint(
    printer: Printer,
    manifest: Manifest,
    tables: Sequence[TensorTable],
    *,
    contents: Contents,
    tensors: bool,
) -> None:
    """One checkpoint in detail."""
    printer.say(f"{manifest.run}, step {manifest.step:,} of life {manifest.life}", style="bold")
    blobs = set(manifest.blobs())
    stored, new = sum(blob.bytes for blob in blobs), _new_bytes(manifest)
    objects = f"{count_text(len(blobs), 'object')} of {bytes_text(stored)}"
    facts = [
        ("saved", f"{printer.moment(manifest.created_at)} ({manifest.reason})"),
        ("size", f"{bytes_text(manifest.total_bytes)} of tensors"),
        ("stored", f"{objects}, {'all' if new == stored else bytes_text(new)} new"),
    ]
    if manifest.epoch is not None:
        facts.append(("epoch", str(manifest.epoch)))
    if manifest.metrics:
        facts.append(("metrics", metrics_text(manifest.metrics)))
    facts += _kept(contents)
    parent = manifest.parent
    came = "nothing: the run began" if parent is None else f"step {parent.step:,} of life {parent.life}"
    facts.append(("resumed from", came))
    if len(manifest.parts) > 1:
        facts.append(("ranks", f"{len(manifest.parts)}, each with a part"))
    if manifest.environment:
        facts.append(
            ("written by", ", ".join(f"{key} {value}" for key, value in manifest.environment.items()))
        )
    facts.append(("manifest", layout.manifest(manifest.run, manifest.id)))
    printer.facts(facts)
    printer.say()
    whole = whole_tensors(tables, where=f"{manifest.run} {manifest.id}")
    if tensors:
        printer.table(_TENSOR_COLUMNS, [_tensor_row(tensor) for tensor in whole])
    else:
        printer.table(_GROUP_COLUMNS, _group_rows(whole))
    if len(manifest.parts) > 1:
        printer.say()
        printer.table(_PART_COLUMNS, _part_rows(manifest, tables))


def _kept(contents: Contents) -> list[tuple[str, str]]:
    """What tensors do not show: a scheduler has none."""
    named = [f"{name} ({kind})" if kind != "object" else name for name, kind in contents.objects.items()]
    if not named and not contents.values:
        return []
    always = [] if contents.imported else ["the random generators", "the place in the data"]
    facts = [("keeps", ", ".join([*named, *always]))]
    return [*facts, ("run.state", ", ".join(contents.values))] if contents.values else facts


def checkpoint_json(manifest: Manifest, tables: Sequence[TensorTable]) -> dict[str, object]:
    """The same for programs, with every tensor."""
    return {
        "run": manifest.run,
        "life": manifest.life,
        "step": manifest.step,
        **_manifest_json(manifest),
        "tensors": [
            {
                "path": tensor.path,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "bytes": tensor.bytes,
                "device": tensor.device,
            }
            for tensor in whole_tensors(tables, where=f"{manifest.run} {manifest.id}")
        ],
        "parts": [
            {
                "rank": part.rank,
                "bytes": part.bytes,
                "chunks": len(part.chunks),
                "tensors": _own(table),
            }
            for part, table in zip(manifest.parts, tables, strict=True)
        ],
    }


def metrics_text(metrics: Mapping[str, float]) -> str:
    """``loss 2.13, accuracy 0.5``"""
    return ", ".join(f"{name} {value:.5g}" for name, value in metrics.items())


def _manifest_json(manifest: Manifest) -> dict[str, object]:
    parent = manifest.parent
    return {
        "epoch": manifest.epoch,
        "reason": manifest.reason,
        "created_at": iso_text(manifest.created_at),
        "bytes": manifest.total_bytes,
        "new_bytes": _new_bytes(manifest),
        "parent": None if parent is None else {"life": parent.life, "step": parent.step},
        "metrics": {name: _finite(value) for name, value in manifest.metrics.items()},
        "environment": dict(manifest.environment),
        "ranks": len(manifest.parts),
    }


def _new_bytes(manifest: Manifest) -> int:
    """What had to be sent for this checkpoint, table and values included."""
    return sum(blob.bytes for blob in set(manifest.blobs()) if blob.home == manifest.id)


def _finite(value: float) -> float | str:
    """JSON has no NaN and no infinities: they are text there, as in the manifest."""
    return value if value - value == 0 else str(value)


def _tensor_row(tensor: Whole) -> list[str]:
    shape = " x ".join(map(str, tensor.shape)) or "scalar"
    return [tensor.path, tensor.dtype, shape, bytes_text(tensor.bytes), tensor.device]


def _part_rows(manifest: Manifest, tables: Sequence[TensorTable]) -> Iterable[list[str]]:
    """A row for each rank. What it holds alike with another is in that one's bytes."""
    for part, table in zip(manifest.parts, tables, strict=True):
        yield [str(part.rank), f"{_own(table):,}", bytes_text(part.bytes), str(len(part.chunks))]


def _own(table: TensorTable) -> int:
    return sum(entry.owner is None for entry in table.tensors)


def _group_rows(tensors: Sequence[Whole]) -> Iterable[list[str]]:
    """A row for each object that was tracked: the path's first word."""
    groups: dict[str, list[Whole]] = {}
    for tensor in tensors:
        sign = "/" if "/" in tensor.path else "."  # torch.distributed.checkpoint has dots only
        groups.setdefault(tensor.path.partition(sign)[0], []).append(tensor)
    for name, entries in groups.items():
        numbers = sum(prod(entry.shape) for entry in entries)
        yield [name, f"{len(entries):,}", f"{numbers:,}", bytes_text(sum(entry.bytes for entry in entries))]
