"""``outlive.dcp.load``: torch's own load, of the newest checkpoint that is whole; on all ranks the same."""

import logging
import warnings
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as load_with_torch

from outlive.dcp.reader import Reader
from outlive.errors import Damaged, NotFound, OutliveError
from outlive.store.layout import CheckpointId

log = logging.getLogger(__name__)


def load(state_dict: dict[str, Any], storage_reader: Reader, **options: Any) -> CheckpointId | None:
    """Load the newest whole checkpoint into `state_dict`; None, and nothing is touched, if the run has none.
    ``NotFound`` if it has none of the step that `checkpoint_id` names.

    `options` are those of ``torch.distributed.checkpoint.load``. A checkpoint that turns out to be damaged
    while it is read is passed over, on all ranks. ``Damaged`` if none is left: `state_dict` holds rubbish.
    """
    storage_reader.reset(options.get("checkpoint_id"))
    group = options.get("process_group")
    alone = bool(options.get("no_dist")) or not (dist.is_available() and dist.is_initialized())
    order = _candidates(storage_reader) if alone else _told(storage_reader, group)
    if isinstance(order, OutliveError):
        raise order
    last: BaseException | None = None
    for checkpoint in order:
        storage_reader.choose(checkpoint)
        try:
            with warnings.catch_warnings():
                if alone:  # that is said by torch, too
                    warnings.filterwarnings("ignore", message="torch.distributed is ")
                load_with_torch(state_dict, storage_reader=storage_reader, **options)
        except (CheckpointException, Damaged, NotFound) as error:
            if not _is_damage(error):
                raise
            log.warning("checkpoint %s is passed over: %s", checkpoint, _line(error))
            storage_reader.pass_over(checkpoint)
            last = error
        else:
            return checkpoint
        finally:
            storage_reader.choose(None)
    if last is not None:
        raise Damaged(f"no checkpoint is whole; the last one: {_line(last)}")
    return None


def _candidates(reader: Reader) -> list[CheckpointId] | OutliveError:
    """What to try, or why that can't be known: it is told like an answer, or the other ranks would wait."""
    try:
        return reader.wanted()
    except OutliveError as error:
        return error


def _told(reader: Reader, group: Any) -> list[CheckpointId] | OutliveError:
    """The first rank's answer, on all of them."""
    box: list[Any] = [_candidates(reader) if dist.get_rank(group) == 0 else None]
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(box, src=first, group=group)
    answer: list[CheckpointId] | OutliveError = box[0]
    return answer


def _is_damage(error: BaseException) -> bool:
    """Whether the checkpoint is at fault, and not the state that it is loaded into, or the store."""
    causes = _causes(error)
    return bool(causes) and all(isinstance(cause, (Damaged, NotFound)) for cause in causes)


def _causes(error: BaseException) -> list[BaseException]:
    if isinstance(error, CheckpointException):
        return [failure[0] for failure in error.failures.values()]
    return [error]


def _line(error: BaseException) -> str:
    return "; ".join(str(cause) for cause in _causes(error))
