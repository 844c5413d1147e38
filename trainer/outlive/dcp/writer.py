"""The storage writer: what ``torch.distributed.checkpoint.save`` hands over becomes a checkpoint of a run."""

import logging
import os
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from outlive.dcp.contents import Contents, table_of
from outlive.dcp.index import Index, Piece, Pieces
from outlive.dcp.items import encode_items
from outlive.dcp.place import Place, step_in
from outlive.dcp.sending import Order, send_part, values
from outlive.dcp.session import Session, session_of
from outlive.errors import ConfigError, OutliveError, StateError, StoreError
from outlive.store.commit import Committer
from outlive.store.document import DOCUMENT_BYTES, Json
from outlive.store.layout import CheckpointId
from outlive.store.manifest import Manifest, Part
from outlive.store.prune import prune
from outlive.store.retention import Keep
from outlive.train import environment

log = logging.getLogger(__name__)

_PART = MetadataIndex("outlive/part")
"""Stands for no tensor: the part that a rank has sent goes to the coordinator beside its results."""


class Writer(StorageWriter):
    """Give it to ``dcp.save`` or ``dcp.async_save`` as ``storage_writer``. It may serve one save or many.

    The first save of a process claims a life of `run`, as every training does: who saves the same run
    elsewhere is superseded. The step is the last number in `checkpoint_id`; without one, steps are counted.
    `keep` is how many of the newest checkpoints stay; None leaves that to ``outlive prune``.
    """

    def __init__(
        self,
        location: str,
        *,
        run: str,
        endpoint: str | None = None,
        region: str | None = None,
        keep: int | None = None,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__()
        self._place = Place(location=location, run=run, endpoint=endpoint, region=region)
        self._keep = None if keep is None else Keep(last=keep)
        self._allow_pickle = allow_pickle
        self._step: int | None = None
        self._items: dict[str, Json] = {}
        self.saved: CheckpointId | None = None
        """The newest checkpoint that this writer has committed. None on ranks that don't coordinate."""

    def __getstate__(self) -> dict[str, Any]:
        # For async_save in a process of its own: it claims the life, and must know what was loaded here.
        return {**self.__dict__, "_items": {}, "gone_on": self._session.gone_on}

    def __setstate__(self, state: dict[str, Any]) -> None:
        gone_on = state.pop("gone_on")
        self.__dict__.update(state)
        self._session.gone_on = gone_on

    @property
    def checkpoint_id(self) -> str:
        """Where the checkpoint goes, for torch's log."""
        return f"{self._place.location}/{self._place.run}"

    def reset(self, checkpoint_id: "str | os.PathLike[str] | None" = None) -> None:
        self._step = step_in(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise ConfigError(
                "use_collectives=False makes a checkpoint of each rank's own, which nobody could commit",
                hint="leave it out",
            )
        if is_coordinator:
            self._session.begin()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        session, committer = self._session, self._session.begin()
        life, parent = committer.life, committer.parent
        step = self._step if self._step is not None else _next_step(committer)
        if committer.newest is not None and step < committer.newest.step:
            raise StoreError(
                f"life {life.number} of run {life.run} has saved step {committer.newest.step} already;"
                f" step {step} would never be found again",
                hint="a life's steps only grow: name a later step in checkpoint_id",
            )
        log.debug("saving step %d of run %s in life %d", step, session.place.run, life.number)
        orders = [
            Order(
                number=session.saves + 1,
                life=life.number,
                step=step,
                parent=None if parent is None else parent.id,
                rank=rank,
                world=len(plans),
            )
            for rank in range(len(plans))
        ]
        return [replace(plan, storage_data=order) for plan, order in zip(plans, orders, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        session, order = self._session, self._order(plan)
        self._step = None  # it was this save's: torch says nothing where the next one has no name
        session.saves, session.sent_step = max(session.saves, order.number), order.step
        _settle()
        session.prepare(order.parent)
        tensors = [item for item in plan.items if item.type is not WriteItemType.BYTE_IO]
        others = [item for item in plan.items if item.type is WriteItemType.BYTE_IO]
        table = table_of(tensors)
        self._items = encode_items(planner, others, allow_pickle=self._allow_pickle)
        contents = Contents(table, tensors, planner)
        part = send_part(session, order, table=table, contents=contents, document={"items": self._items})
        session.keep(part)
        results = [WriteResult(index=_PART, size_in_bytes=part.bytes, storage_data=(order, part))]
        results += [
            WriteResult(index=item.index, size_in_bytes=entry.bytes, storage_data=entry.offset)
            for item, entry in zip(tensors, table.tensors, strict=True)
        ]
        results += [WriteResult(index=item.index, size_in_bytes=0, storage_data=None) for item in others]
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        session, committer = self._session, self._session.begin()
        order, parts = _parts(results)
        index = _index(metadata, results)
        document = {"items": self._items, "index": index.encode()}
        own = CheckpointId(order.life, order.step)
        raw = values(document)
        if len(raw) > DOCUMENT_BYTES:
            raise StateError(
                f"what torch says of the tensors is {len(raw)} bytes, more than {DOCUMENT_BYTES}"
            )
        parts[0] = replace(parts[0], values=session.placing(own).place(raw)[0])
        manifest = self._manifest(committer, order, parts)
        self.saved = committer.conclude(manifest).manifest.id
        metadata.storage_data = {
            result.index: result.storage_data for rank in results for result in rank if result.index != _PART
        }
        self._prune(committer)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike[str]") -> bool:
        try:
            return step_in(checkpoint_id) is not None
        except ConfigError:
            return False

    @property
    def _session(self) -> Session:
        return session_of(self._place)

    def _order(self, plan: SavePlan) -> Order:
        """This save's. A planner that caches its plans gives that of an earlier save again, with its step."""
        order = plan.storage_data
        if not isinstance(order, Order):
            raise ConfigError("the planner has dropped what the writer told the ranks (storage_data)")
        if self._step is not None:
            return replace(order, step=self._step)
        met = order.number <= self._session.saves
        return replace(order, step=self._session.sent_step + 1) if met else order

    def _manifest(self, committer: Committer, order: Order, parts: list[Part]) -> Manifest:
        return Manifest(
            run=committer.life.run,
            life=committer.life.number,
            step=order.step,
            epoch=None,
            reason="hand",
            created_at=datetime.now(timezone.utc),
            nonce=committer.life.nonce,
            parent=None if committer.parent is None else committer.parent.id,
            environment=environment.describe(),
            parts=tuple(parts),
        )

    def _prune(self, committer: Committer) -> None:
        if self._keep is None:
            return
        try:
            prune(self._session.store, committer.life.run, self._keep, owner=committer)
        except OutliveError as error:  # the checkpoint is saved all the same
            log.warning("run %s was not pruned: %s", committer.life.run, error)


def _next_step(committer: Committer) -> int:
    last = committer.newest or committer.parent
    return 1 if last is None else last.step + 1


def _parts(results: list[list[WriteResult]]) -> tuple[Order, list[Part]]:
    """What every rank has sent, by rank. ``StoreError`` if they did not save the same."""
    sent = [result.storage_data for rank in results for result in rank if result.index == _PART]
    orders: list[Order] = [order for order, _ in sent]
    steps = sorted({(order.life, order.step) for order in orders})
    if len(sent) != len(results) or len(steps) != 1:
        named = ", ".join(f"step {step} of life {life}" for life, step in steps)
        raise StoreError(
            f"{len(results)} ranks have saved {named or 'nothing'}, so there is no checkpoint",
            hint="give every rank the same checkpoint_id, and let all ranks take part in every save",
        )
    return orders[0], [replace(part, rank=rank, world=len(sent)) for rank, (_, part) in enumerate(sent)]


def _index(metadata: Metadata, results: list[list[WriteResult]]) -> Index:
    """Where each tensor and value lies, by what the ranks have written."""
    offsets: dict[str, dict[tuple[int, ...], tuple[int, int]]] = {}
    items: dict[str, int] = {}
    for rank, written in enumerate(results):
        for result in written:
            if result.index == _PART:
                continue
            if result.storage_data is None:
                items[result.index.fqn] = rank
            else:
                at = tuple(result.index.offset or ())
                offsets.setdefault(result.index.fqn, {})[at] = (rank, result.storage_data)
    tensors: dict[str, Pieces] = {}
    for name, known in metadata.state_dict_metadata.items():
        if isinstance(known, TensorStorageMetadata):
            placed = offsets.get(name, {})
            pieces = []
            for chunk in known.chunks:
                where = placed.get(tuple(chunk.offsets))
                if where is None:
                    raise StoreError(f"no rank has saved the piece of {name} at {list(chunk.offsets)}")
                shape = tuple(chunk.sizes)
                pieces.append(Piece(rank=where[0], offset=where[1], at=tuple(chunk.offsets), shape=shape))
            tensors[name] = Pieces(dtype=known.properties.dtype, size=tuple(known.size), pieces=tuple(pieces))
    return Index(tensors=tensors, items=items, planner_data=metadata.planner_data)


def _settle() -> None:
    """Wait for what the devices are still doing: the copies below run on streams of their own threads."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
