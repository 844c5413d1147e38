"""What the bucket honours, found out once and remembered on this machine for a week."""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from outlive.objects.interface import ObjectStore
from outlive.objects.probe import Assuming, probe
from outlive_agent.journal import Journal

REMEMBERED_SECONDS = 7 * 24 * 3600.0
_AT_MOST = 4096


def learn(store: ObjectStore, place: str, *, environ: Mapping[str, str], journal: Journal) -> None:
    """Tell ``store`` whether it lets one of many writers create an object, and the user what it lacks.

    ``place`` is the location and endpoint: what is remembered is remembered for it.
    """
    if "://" not in store.location or not isinstance(store, Assuming):
        return  # a directory honours it by itself
    file = _directory(environ) / f"probe-{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"
    create_only = _recall(file)
    if create_only is None:
        found = probe(store)
        for line in found.missing:
            journal.warning(f"{store.location}: {line}")
        create_only = found.create_only
        if not found.missing:
            _remember(file)
    store.assume(create_only=create_only)


def _recall(file: Path) -> bool | None:
    """True if the bucket was found to be sound not long ago; what it lacks is looked for each time."""
    try:
        with file.open("rb") as opened:
            document = json.loads(opened.read(_AT_MOST))
        age = time.time() - document["at"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return True if document.get("create_only") is True and 0 <= age < REMEMBERED_SECONDS else None


def _remember(file: Path) -> None:
    draft = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # then it is probed again next time
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(json.dumps({"create_only": True, "at": time.time()}))
        draft.replace(file)


def _directory(environ: Mapping[str, str]) -> Path:
    state = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if state:
        return Path(state)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlive"
