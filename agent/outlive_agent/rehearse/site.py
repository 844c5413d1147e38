"""Where a rehearsal takes place: a folder with a store, logs and diaries of its own."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store.layout import CheckpointId
from outlive.store.lives import newest_life
from outlive.store.newest import listed

_LONGEST_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The user's own store, and the settings that name it, are not used here."""

    directory: Path
    run: str
    command: tuple[str, ...]

    @property
    def location(self) -> Path:
        return self.directory / "store"

    def store(self) -> ObjectStore:
        return open_store(str(self.location))

    def life(self) -> int:
        """The newest one; 0 if there is none."""
        return newest_life(self.store(), self.run)

    def saved(self, life: int) -> list[CheckpointId]:
        """What that life has saved, the oldest first."""
        return sorted(found for found in listed(self.store(), self.run) if found.life == life)

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        """Of a leg: nothing in it leads to the user's own runs."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        # What a killed agent leaves must not show in `outlive status`; a socket's path can't be long, though.
        own = len(os.fsencode(self.directory)) <= _LONGEST_BYTES
        runtime = {"XDG_RUNTIME_DIR": str(self.directory)} if own else {}
        return {**clean, **runtime, "OUTLIVE_PROVIDER": "none", **more}
