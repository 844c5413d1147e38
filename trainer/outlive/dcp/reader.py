"""The storage reader: gives ``torch.distributed.checkpoint.load`` the newest whole checkpoint of a run."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from outlive.dcp.candidates import Candidate, candidates, no_checkpoint, read_candidate, read_values
from outlive.dcp.items import as_torch_made_it, pickled
from outlive.dcp.place import Place, step_in
from outlive.dcp.reading import Reading
from outlive.dcp.session import session_of
from outlive.errors import Damaged, NotFound, OutliveError, StateError
from outlive.objects.interface import ObjectStore
from outlive.store.layout import CheckpointId

log = logging.getLogger(__name__)


class Reader(StorageReader):
    """Give it to ``dcp.load`` as ``storage_reader``. It reads, and claims nothing.

    A checkpoint_id with a number means that step; without one the newest checkpoint is loaded of which
    nothing is missing. ``outlive.dcp.load`` also passes over one whose bytes turn out to be altered.
    """

    def __init__(
        self,
        location: str,
        *,
        run: str,
        endpoint: str | None = None,
        region: str | None = None,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__()
        self._place = Place(location=location, run=run, endpoint=endpoint, region=region)
        self._allow_pickle = allow_pickle
        self._step: int | None = None
        self._chosen: CheckpointId | None = None
        self._candidate: Candidate | None = None
        self._values: dict[int, dict[str, Any]] = {}
        self._trouble: OutliveError | None = None
        self.loaded: CheckpointId | None = None
        """What the newest load has read."""
        self.read_bytes = 0
        """How much of it this rank has read from the store, chunks counting whole."""

    @property
    def checkpoint_id(self) -> str:
        """Where it reads, for torch's log."""
        return f"{self._place.location}/{self._place.run}"

    @property
    def store(self) -> ObjectStore:
        return self._place.open()

    def candidates(self) -> Iterator[CheckpointId]:
        """What would be tried, best first."""
        return candidates(self.store, self._place.run, step=self._step)

    def wanted(self) -> list[CheckpointId]:
        """The same; ``NotFound`` if a step was named that is not there."""
        found = list(self.candidates())
        if not found and self._step is not None:
            raise no_checkpoint(self.store, self._place.run, self._step)
        return found

    def choose(self, checkpoint: CheckpointId | None) -> None:
        """Read this one, whatever is newer; None: the newest again."""
        self._chosen = checkpoint

    def pass_over(self, checkpoint: CheckpointId) -> None:
        """Remember that this one is damaged, so that going on from an older one is no rewind."""
        session = session_of(self._place)
        known = session.gone_on.passed_over
        session.gone_on = replace(session.gone_on, passed_over=known | {checkpoint})

    def reset(self, checkpoint_id: "str | os.PathLike[str] | None" = None) -> None:
        self._step = step_in(checkpoint_id)
        self._candidate, self._values = None, {}

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        # Torch takes an error here for a checkpoint of another kind, and hides it: it is raised a step later.
        self._trouble = None
        try:
            self._take(self._newest())
        except OutliveError as error:
            self._trouble = error
            return Metadata(state_dict_metadata={})
        return self._found.index.metadata()

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if self._trouble is not None:
            raise self._trouble

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        self._check_pickles(plan)
        return replace(plan, storage_data=self._found.id)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        # While the ranks looked, another checkpoint may have come: all read the coordinator's.
        return [replace(plan, storage_data=self._found.id) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        if plan.storage_data != self._found.id:
            self._follow(plan)
        tensors = [item for item in plan.items if item.type is not LoadItemType.BYTE_IO]
        reading = Reading(self.store, self._found, planner)
        reading.read(tensors)
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                name = item.storage_index.fqn
                planner.load_bytes(item, as_torch_made_it(name, self._items(name)))
        self.read_bytes = reading.bytes
        self.loaded = self._found.id
        session = session_of(self._place)
        session.gone_on = replace(session.gone_on, checkpoint=self.loaded, rewound=self._is_rewind())
        self._step = None  # it was this load's: torch says nothing where the next one has no name
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike[str]") -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    @property
    def _found(self) -> Candidate:
        if self._candidate is None:
            self._take(self._newest())
        assert self._candidate is not None  # noqa: S101 - just taken
        return self._candidate

    def _take(self, candidate: Candidate) -> None:
        self._candidate, self._values = candidate, {}

    def _newest(self) -> Candidate:
        if self._chosen is not None:
            return read_candidate(self.store, self._place.run, self._chosen)
        last: Damaged | NotFound | None = None
        for checkpoint in self.candidates():
            try:
                return read_candidate(self.store, self._place.run, checkpoint)
            except (Damaged, NotFound) as error:
                log.warning("checkpoint %s of run %s is passed over: %s", checkpoint, self._place.run, error)
                self.pass_over(checkpoint)
                last = error
        if last is None:
            raise no_checkpoint(self.store, self._place.run, self._step)
        raise Damaged(
            f"no checkpoint of run {self._place.run} in {self.store.location} is whole; the last one: {last}",
            hint=f"look at them with: outlive verify {self._place.run}",
        )

    def _follow(self, plan: LoadPlan) -> None:
        """Read the coordinator's checkpoint instead of the one that this rank has planned with."""
        planned = self._found.index.metadata().state_dict_metadata
        self._take(read_candidate(self.store, self._place.run, plan.storage_data))
        if self._found.index.metadata().state_dict_metadata != planned:
            raise StateError(
                f"while this was loaded, {plan.storage_data} was saved with other tensors", hint="load again"
            )
        self._check_pickles(plan)

    def _check_pickles(self, plan: LoadPlan) -> None:
        """``StateError`` for all values that only a pickle gives, before anything is touched."""
        if self._allow_pickle:
            return
        names = [item.storage_index.fqn for item in plan.items if item.type is LoadItemType.BYTE_IO]
        found = [name for name in names if pickled([name], self._items(name))]
        if found:
            raise StateError(
                f"{', '.join(found[:10])}: kept as a pickle, which is code of whoever wrote it",
                hint="if you trust all who can write to the store: Reader(..., allow_pickle=True)",
            )

    def _items(self, name: str) -> dict[str, Any]:
        """The values of the part that holds this one."""
        rank = self._found.index.items.get(name)
        if rank is None:
            raise Damaged(f"the checkpoint's index has no {name}")
        if rank not in self._values:
            document = read_values(self.store, self._found.manifest, rank=rank)
            with suppress(KeyError, TypeError):
                self._values[rank] = dict(document["dcp"]["items"])
        if rank not in self._values:
            raise Damaged(f"the values of part {rank} are not those of torch.distributed.checkpoint")
        return self._values[rank]

    def _is_rewind(self) -> bool:
        """Whether an older checkpoint was asked for by its step."""
        if self._step is None:
            return False
        newest = next(iter(candidates(self.store, self._place.run, step=None)), None)
        return newest != self.loaded
