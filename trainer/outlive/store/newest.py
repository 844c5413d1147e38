"""Which checkpoint a life resumes from: the order of preference, with every deliberate rewind honoured."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from outlive.errors import Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import DOCUMENT_BYTES
from outlive.store.layout import CheckpointId
from outlive.store.lives import Adoption, read_adoption
from outlive.store.manifest import Manifest


def newest_first(store: ObjectStore, run: str) -> Iterator[CheckpointId]:
    """The same as ``checkpoints``, asked for as far as it is read.

    The first one costs about four short listings, however many checkpoints there are. ``StoreError`` and
    ``Damaged`` may come at any turn.
    """
    lives, rewound = _lives(store, run)
    yield from _order(_by_life(store, run, lives), rewound)


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
    return _lives(store, run)[1]


def preferred(found: list[CheckpointId], rewound: Mapping[int, CheckpointId | None]) -> list[CheckpointId]:
    """The order of preference: from the newest life downwards; one that rewound leads on to where it went."""
    by_life = {life: list(own) for life, own in groupby(sorted(found, reverse=True), attrgetter("life"))}
    lives = sorted({*by_life, *rewound}, reverse=True)
    return list(_order(((life, by_life.get(life, [])) for life in lives), rewound))


def read_manifest(store: ObjectStore, run: str, checkpoint: CheckpointId) -> Manifest:
    """The manifest of one checkpoint. ``NotFound``; ``Damaged`` if it is none, or another's."""
    key = layout.manifest(run, checkpoint)
    found = Manifest.decode(store.get(key, at_most=DOCUMENT_BYTES), where=key)
    if (found.run, found.id) != (run, checkpoint):
        raise Damaged(f"{key} in {store.location} is the manifest of {found.run} {found.id}")
    return found


def _order(
    by_life: Iterable[tuple[int, list[CheckpointId]]], rewound: Mapping[int, CheckpointId | None]
) -> Iterator[CheckpointId]:
    """The order, from lives with their checkpoints, both from the newest one downwards."""
    below: CheckpointId | None = None  # where the last rewind on the way led to
    for life, own in by_life:
        if below is not None and life > below.life:
            continue
        yield from (checkpoint for checkpoint in own if below is None or checkpoint <= below)
        if life in rewound:
            below = rewound[life]
            if below is None:
                return


def _lives(store: ObjectStore, run: str) -> tuple[set[int], dict[int, CheckpointId | None]]:
    """All that are known in ``lives/``, and those of them that went back."""
    known: set[int] = set()
    found: dict[int, CheckpointId | None] = {}
    for info in store.list(layout.lives(run)):
        claim, life = layout.parse_claim(run, info.key), layout.parse_rewound(run, info.key)
        if claim is not None:
            known.add(claim.life)
        if life is not None:
            known.add(life)
            found[life] = _rewind(store, run, life).checkpoint
    return known, found


def _by_life(store: ObjectStore, run: str, lives: set[int]) -> Iterator[tuple[int, list[CheckpointId]]]:
    """Lives with their checkpoints, the newest first: all that are in ``lives``, and others that have any.

    That a claim was removed hides nothing: what lies between two lives is asked for with the older one.
    """
    known = sorted(lives, reverse=True)
    firsts = [known[index] for index in _steps(len(known))]
    above = layout.MAX_LIFE + 1
    for life in [*firsts, 1]:
        if life < above:
            within = sorted(_between(store, run, life, above), reverse=True)
            own = {number: list(found) for number, found in groupby(within, attrgetter("life"))}
            asked = {number for number in lives if life <= number < above}
            yield from ((number, own.get(number, [])) for number in sorted({*own, *asked}, reverse=True))
            above = life


def _steps(count: int) -> Iterator[int]:
    """0, 1, 3, 7, ...: each listing takes twice as many lives as the one before it."""
    index = 0
    while index < count:
        yield index
        index = 2 * index + 1


def _between(store: ObjectStore, run: str, low: int, high: int) -> Iterator[CheckpointId]:
    """The checkpoints of the lives from ``low`` up to ``high``, which is not among them."""
    start = f"{layout.manifests(run)}{low:06d}"
    alone = high == low + 1
    for info in store.list(f"{start}-") if alone else store.list(layout.manifests(run), after=start):
        checkpoint = layout.parse_manifest(run, info.key)
        if checkpoint is not None and checkpoint.life >= high:
            return
        if checkpoint is not None:
            yield checkpoint


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
