"""What a rank leaves to another one must lie there, or a checkpoint without a fault could not be resumed."""

from collections.abc import Sequence

from outlive.errors import Damaged
from outlive.store.table import TensorEntry, TensorTable


def check_owners(tables: Sequence[TensorTable], *, where: str) -> None:
    """``Damaged`` unless every ``owner`` is a rank that holds this very piece itself, with its bytes."""
    held: dict[int, dict[str, TensorEntry]] = {}
    for rank, table in enumerate(tables):
        for entry in table.tensors:
            if entry.owner is None:
                continue
            if entry.owner not in held and entry.owner < len(tables):
                own = tables[entry.owner].tensors
                held[entry.owner] = {other.path: other for other in own if other.owner is None}
            found = held.get(entry.owner, {}).get(entry.path)
            if found is None or _piece(found) != _piece(entry):
                raise Damaged(
                    f"{where}: {entry.path} of part {rank} should lie in part {entry.owner},"
                    " which has no such tensor"
                )


def _piece(entry: TensorEntry) -> tuple[object, ...]:
    return entry.dtype, entry.shape, entry.whole, entry.at
