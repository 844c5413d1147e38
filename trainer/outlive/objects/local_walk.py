"""The files below a directory as keys, in the order of the keys' bytes."""

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from outlive.objects.interface import ObjectInfo
from outlive.objects.keys import unprintable


def is_document(key: str) -> bool:
    """Whether whatever stands there is listed as an object, be it a link, a pipe or a directory.

    A folder of keys is no object; one that is called like a document stands where one should be, and who
    reads it must hear so.
    """
    return "/" in key and key.endswith(".json")


def walk(root: Path, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Objects whose key begins with ``prefix`` and is greater than ``after``. Opens no directory in vain."""
    whole = prefix.rpartition("/")[0]
    directory = root / whole if whole else root
    yield from _below(directory, whole + "/" if whole else "", prefix, after)


def _below(directory: Path, head: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
    for key in _sorted_keys(directory, head):
        if key.endswith("/"):
            if _may_hold(key, prefix, after):
                yield from _below(directory / key[len(head) : -1], key, prefix, after)
        elif key.startswith(prefix) and key > after:
            try:
                status = (directory / key[len(head) :]).lstat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            modified = datetime.fromtimestamp(status.st_mtime, timezone.utc)
            yield ObjectInfo(key=key, size=status.st_size, modified=modified)


def _sorted_keys(directory: Path, head: str) -> list[str]:
    """A directory's key ends with ``/`` and sorts by it: ``a-b`` comes before ``a/c``, as on S3."""
    keys = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if unprintable(entry.name):
                    continue  # no key is called that
                if entry.is_dir(follow_symlinks=False):
                    keys.append(f"{head}{entry.name}/")
                if entry.is_file(follow_symlinks=False) or is_document(head + entry.name):
                    keys.append(head + entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(keys)


def _may_hold(directory: str, prefix: str, after: str) -> bool:
    if not (directory.startswith(prefix) or prefix.startswith(directory)):
        return False
    return directory > after or after.startswith(directory)
