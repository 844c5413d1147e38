"""Which checkpoint a life resumes from: the order of preference, with every deliberate rewind honoured."""

from collections.abc import Mapping

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import DOCUMENT_BYTES
from outlive.store.layout import CheckpointId
from outlive.store.lives import Adoption, read_adoption
from outlive.store.manifest import Manifest


def checkpoints(store: ObjectStore, run: str) -> list[CheckpointId]:
    """The checkpoints to resume from, best first; those that a rewind abandoned are not among them.

    Two listings and one small read for each rewind; whether a checkpoint is whole shows when it is read.
    """
    return preferred(listed(store, run), rewinds(store, run))


def listed(store: ObjectStore, run: str) -> list[CheckpointId]:
    """Every checkpoint of the run, by life and step, the abandoned ones too."""
    keys = (layout.parse_manifest(run, info.key) for info in store.list(layout.manifests(run)))
    return [checkpoint for checkpoint in keys if checkpoint is not None]


def rewinds(store: ObjectStore, run: str) -> dict[int, CheckpointId | None]:
    """Which lives went back on purpose, and to what. ``Damaged`` if that can't be read: nobody may guess."""
    found: dict[int, CheckpointId | None] = {}
    for info in store.list(layout.lives(run)):
        life = layout.parse_rewound(run, info.key)
        if life is not None:
            found[life] = _rewind(store, run, life).checkpoint
    return found


def preferred(found: list[CheckpointId], rewound: Mapping[int, CheckpointId | None]) -> list[CheckpointId]:
    """The order of preference: from the newest life downwards; one that rewound leads on to where it went."""
    order: list[CheckpointId] = []
    by_life: dict[int, list[CheckpointId]] = {}
    for checkpoint in sorted(found, reverse=True):
        by_life.setdefault(checkpoint.life, []).append(checkpoint)
    below: CheckpointId | None = None  # where the last rewind on the way led to
    for life in sorted({*by_life, *rewound}, reverse=True):
        if below is not None and life > below.life:
            continue
        order += [checkpoint for checkpoint in by_life.get(life, []) if below is None or checkpoint <= below]
        if life in rewound:
            below = rewound[life]
            if below is None:
                break
    return order


def read_manifest(store: ObjectStore, run: str, checkpoint: CheckpointId) -> Manifest:
    """The manifest of one checkpoint. ``NotFound``; ``Damaged`` if it is none, or another's."""
    key = layout.manifest(run, checkpoint)
    found = Manifest.decode(store.get(key, at_most=DOCUMENT_BYTES), where=key)
    if (found.run, found.id) != (run, checkpoint):
        raise Damaged(f"{key} in {store.location} is the manifest of {found.run} {found.id}")
    return found


def _rewind(store: ObjectStore, run: str, life: int) -> Adoption:
    hint = (
        f"put {layout.adopted(run, life, rewind=True)} back, or remove it if life {life} was not to go back"
    )
    try:
        adoption = read_adoption(store, run, life)
    except Damaged as error:
        raise Damaged(
            f"what life {life} of run {run} went back to can't be read: {error}", hint=hint
        ) from error
    if adoption is None or not adoption.rewind:
        raise NotFound(f"the record of life {life} of run {run} was removed while it was read", hint=hint)
    return adoption
