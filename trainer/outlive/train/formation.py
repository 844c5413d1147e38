"""Which keys of the job's store are of this set of ranks: torchrun may give the next set the same store."""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from torch.distributed import distributed_c10d

from outlive.errors import ConfigError
from outlive.train.council import JobStore
from outlive.train.link import Stopped
from outlive.train.ranks import Ranks

FORM_SECONDS = 120.0
"""How long rank 0 may take to attach after another one."""
_LOOK_SECONDS = 0.05

_runs = count(1)


def form(ranks: Ranks, *, stopped: Callable[[], bool]) -> JobStore:
    """The job's store under a name that rank 0 has just made up, and tells whoever asks.

    A rank asks under a name of its own, so that no answer of an earlier set is taken for one to it.
    ``ConfigError`` if rank 0 never attaches, ``Stopped`` if a signal comes meanwhile.
    """
    store = _under(f"outlive/{next(_runs)}", _own_connection())
    if ranks.rank == 0:
        name = secrets.token_hex(8)
        threading.Thread(target=_answer, args=(ranks, store, name), name="outlive-form", daemon=True).start()
        return _under(name, store)
    nonce, deadline = secrets.token_hex(8), time.monotonic() + FORM_SECONDS
    store.set(f"ask/{ranks.rank}", nonce)
    while not store.check([f"answer/{nonce}"]):
        if stopped():
            raise Stopped
        if time.monotonic() > deadline:
            raise ConfigError(
                f"rank 0 has not attached within {FORM_SECONDS:.0f} s",
                hint="every rank must call outlive.attach",
            )
        time.sleep(_LOOK_SECONDS)
    name = store.get(f"answer/{nonce}").decode()
    store.set(f"{name}/here/{ranks.rank}", "")
    return _under(name, store)


def _answer(ranks: Ranks, store: JobStore, name: str) -> None:
    """Until every rank has taken the name."""
    here = [f"{name}/here/{rank}" for rank in range(1, ranks.world)]
    with suppress(RuntimeError):  # the store's host is gone, and the job with it
        while not store.check(here):
            for rank in range(1, ranks.world):
                if store.check([f"ask/{rank}"]):
                    store.set(f"answer/{store.get(f'ask/{rank}').decode()}", name)
            time.sleep(_LOOK_SECONDS)


def _own_connection() -> JobStore:
    """On a connection of ours: torch's own may be waiting for a peer when we ask."""
    store: Any = distributed_c10d._get_default_store()
    with suppress(AttributeError, RuntimeError, NotImplementedError):  # some kinds can't be cloned
        store = store.clone()
    found: JobStore = store
    return found


def _under(prefix: str, store: Any) -> JobStore:
    prefixed: JobStore = distributed_c10d.PrefixStore(prefix, store)
    return prefixed
