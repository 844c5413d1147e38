"""A corner of the store to try things in, that is empty again afterwards."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from outlive.errors import NoBucket, StoreError
from outlive.objects.interface import ObjectStore
from outlive.objects.probe import FOLDER

_ABANDONED = timedelta(hours=1)
"""Nobody tries for so long: it was left by someone who was killed."""


class Scratch:
    """``folder`` is this examination's own. The store may be a bucket or a directory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._root = None if "://" in store.location else Path(store.location)
        self._made = _missing(self._root)
        self.folder = f"{FOLDER}/{secrets.token_hex(8)}"

    def key(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def make_above(self) -> None:
        """Make the directory above the store, as an agent does where nobody named another."""
        if self._root is not None:
            try:
                self._root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                text = f"{self._root.parent}: {(error.strerror or str(error)).lower()}"
                raise NoBucket(text, hint="name another place with --store") from None

    def clear(self) -> Sequence[str]:
        """Remove everything in it, and what others left long ago. Returns what could not be removed."""
        now = self._store.now()
        mine, abandoned = [], []
        for info in self._store.list(f"{FOLDER}/"):
            if info.key.startswith(f"{self.folder}/"):
                mine.append(info.key)
            elif now - info.modified > _ABANDONED:
                abandoned.append(info.key)
        with suppress(StoreError):  # not ours: whoever may not remove these can still be well
            self._store.delete(abandoned)
        if mine:
            self._store.delete(mine)
        self._remove_directories()
        return [info.key for info in self._store.list(f"{self.folder}/")] if mine else []

    def _remove_directories(self) -> None:
        """A directory as a store keeps empty folders; a bucket has none."""
        if self._root is None:
            return
        own = self._root / self.folder
        inner = sorted((path for path in own.rglob("*") if path.is_dir()), reverse=True)
        for path in (*inner, own, own.parent, self._root / ".outlive-tmp", *self._made):
            with suppress(OSError):  # it is not there, or something else is in it
                path.rmdir()


def _missing(root: Path | None) -> list[Path]:
    """The directories that are not there yet, the innermost first: whoever makes them removes them."""
    if root is None:
        return []
    return [path for path in (root, *root.parents) if not path.exists()]
