"""The life of a daemon, kept in its runtime directory until the life ends: who replaces it goes on with it.

systemd keeps the directory, and a reboot clears it.
"""

import json
from contextlib import suppress
from pathlib import Path

from outlive.store.lives import Life

FILE_NAME = "life.json"
_AT_MOST = 1 << 16


class KeptLife:
    """Losing the file costs no step: a new life begins, and a training that still runs must stop for it."""

    def __init__(self, directory: Path, store: str, *, run: str) -> None:
        self._path = directory / FILE_NAME
        self._store = store
        self._run = run

    def keep(self, life: Life) -> None:
        """This life is ours."""
        document = {"store": self._store, "run": life.run, "life": life.number, "nonce": life.nonce}
        draft = self._path.with_suffix(".new")
        with suppress(OSError):
            draft.write_text(json.dumps(document), encoding="utf-8")
            draft.chmod(0o600)
            draft.replace(self._path)

    def read(self) -> Life | None:
        """The life that an agent here left without ending it; None if there is none, or it can't be read."""
        try:
            with self._path.open("rb") as file:
                document = json.loads(file.read(_AT_MOST))
            if (document["store"], document["run"]) != (self._store, self._run):
                return None
            return Life(run=self._run, number=int(document["life"]), nonce=str(document["nonce"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget(self) -> None:
        """The life is over."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
