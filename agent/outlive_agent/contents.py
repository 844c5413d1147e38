"""What a checkpoint keeps beside its tensors, by name: read from its values without torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlive.errors import Damaged
from outlive.objects.interface import ObjectStore
from outlive.store.fetch import read_blob
from outlive.store.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """``objects``: each tracked object's kind (``module``, ``optimizer``, ``object``) by its name.

    ``values``: the names on ``run.state``. ``fleeting``: each module's buffers that its ``state_dict()``
    leaves out. ``foreign``: torch.distributed.checkpoint saved it, which says none of this.
    ``imported``: there is no more.
    """

    objects: Mapping[str, str]
    values: Sequence[str]
    fleeting: Mapping[str, frozenset[str]]
    foreign: bool = False
    imported: bool = False


def read_contents(store: ObjectStore, manifest: Manifest) -> Contents:
    """The contents of a checkpoint. ``Damaged`` if its values are not those of a run."""
    blob = manifest.parts[0].values
    raw = bytearray(blob.bytes)
    read_blob(store, manifest.run, blob, memoryview(raw))
    try:
        document = json.loads(raw)
        objects = document.get("objects", {})
        return Contents(
            objects={name: str(tree["kind"]) for name, tree in objects.items()},
            values=[str(name) for name in document.get("state", {})],
            fleeting={
                name: frozenset(tree["fleeting"])
                for name, tree in objects.items()
                if tree["kind"] == "module"
            },
            foreign="dcp" in document,
            imported=bool(document.get("imported")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        where = f"the values of {manifest.run} {manifest.id}"
        raise Damaged(f"{where} are not those of a run: {error}") from error
