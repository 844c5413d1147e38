"""Whether a run can be read with the key that is given, or with none: asked before anything is written."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from outlive.errors import ConfigError, Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.objects.sealed import ENCRYPTION_KEY, SIGNING_KEY, Sealed, variable_of
from outlive.store import layout
from outlive.store.document import DOCUMENT_BYTES

_MOST: Final = 16
"""Documents that are tried with a key: one that is damaged, or planted, must not stop the run."""
_HOW: Final = {ENCRYPTION_KEY: "encrypted", SIGNING_KEY: "signed"}


def check_seal(store: ObjectStore, run: str) -> None:
    """``ConfigError`` if ``run`` was sealed with another key than ``store`` has, or one of the two has none.

    Costs a listing and, where a life was claimed before, one read. Nothing is there yet: any key is right.
    """
    if not isinstance(store, Sealed):
        for key in _documents(store, run):
            name = _variable(store, key)
            if name is not None:
                raise ConfigError(
                    f"run {run} in {store.location} is {_HOW[name]}, and no key is given",
                    hint=f"set {name} to the key that it was begun with, where the store's keys are given",
                )
            return
        return
    found = list(islice(_unopened(store, run), _MOST))
    if found and found[-1] is not None:
        raise _refused(store, run, found[0])


def _unopened(store: Sealed, run: str) -> Iterator[str | None]:
    """The keys of documents that can't be opened; None at the first that can, and no more."""
    for key in _documents(store, run):
        try:
            store.get(key, at_most=DOCUMENT_BYTES)
        except NotFound:  # removed since it was listed
            continue
        except Damaged:
            yield key
        else:
            yield None
            return


def _refused(store: Sealed, run: str, key: str | None) -> ConfigError:
    given = store.variable
    found = None if key is None else _variable(store.inner, key)
    where = f"run {run} in {store.location}"
    if found is None:
        return ConfigError(
            f"{where} is not sealed, and {given} is set",
            hint=f"unset {given} if you began it without; if not, somebody else wrote it: use a new run name",
        )
    if found != given:
        return ConfigError(
            f"{where} is {_HOW[found]}, and {given} is set",
            hint=f"set {found} instead, to the key that the run was begun with",
        )
    return ConfigError(
        f"{where} is {_HOW[found]} with another key than the one that {given} holds",
        hint=f"set {given} to the key that the run was begun with",
    )


def _variable(store: ObjectStore, key: str) -> str | None:
    try:
        return variable_of(store.get(key, at_most=DOCUMENT_BYTES))
    except (NotFound, Damaged):  # removed since, or too long to be a document
        return None


def _documents(store: ObjectStore, run: str) -> Iterator[str]:
    """The claims, the newest first, then the manifests: whoever reads the run reads one of these."""
    claims = [info.key for info in store.list(layout.lives(run)) if layout.parse_claim(run, info.key)]
    yield from sorted(claims, reverse=True)
    manifests = [i.key for i in store.list(layout.manifests(run)) if layout.parse_manifest(run, i.key)]
    yield from sorted(manifests, reverse=True)
