"""Where a run is kept, as the script said it: values that can go to another process, and the store behind."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from outlive.errors import ConfigError
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.objects.sealed import Sealed, find_seal
from outlive.store.layout import MAX_STEP, check_run_name
from outlive.store.sealing import check_seal

_NUMBER: Final = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A run in a store. Keys are found in the environment, as everywhere."""

    location: str
    run: str
    endpoint: str | None = None
    region: str | None = None

    def __post_init__(self) -> None:
        check_run_name(self.run)

    def open(self) -> ObjectStore:
        """The store, sealed if the environment has a key. One for each place and process."""
        return _opened(self, os.getpid())


def step_in(checkpoint_id: "str | os.PathLike[str] | int | None") -> int | None:
    """The step that a checkpoint's name says: its last number. ``ConfigError`` if it says none."""
    if checkpoint_id is None:
        return None
    text = os.fspath(checkpoint_id) if not isinstance(checkpoint_id, int) else str(checkpoint_id)
    numbers = _NUMBER.findall(text)
    if not numbers or int(numbers[-1]) > MAX_STEP:
        raise ConfigError(
            f"checkpoint_id={text!r} names no step",
            hint="end it with the step, such as 'step-1200', or leave it out: steps are then counted",
        )
    return int(numbers[-1])


@lru_cache(maxsize=8)
def _opened(place: Place, process: int) -> ObjectStore:
    """`process`: a fork must not use the connections of its parent."""
    store = open_store(place.location, endpoint=place.endpoint, region=place.region)
    seal = find_seal(os.environ)
    opened: ObjectStore = store if seal is None else Sealed(store, seal)
    check_seal(opened, place.run)
    return opened
