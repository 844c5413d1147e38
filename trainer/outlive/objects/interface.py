"""The one interface every object store implements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

Body: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object in a listing. ``modified`` is the store's own clock, in UTC."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a store declares about itself, so that nobody asks for its name.

    ``create_only``: ``put(create_only=True)`` lets exactly one of many concurrent writers win.
    ``concurrency``: how many requests at once are worth having.
    """

    create_only: bool
    concurrency: int


class ObjectStore(Protocol):
    """Flat keys to bytes.

    Keys are relative to the store's prefix, with ``/`` between parts, and never begin or end with it.
    All methods may be called from many threads at once. All raise the errors of :mod:`outlive.errors` and no
    others: ``Denied``, ``NoBucket``, ``StoreFull``, ``Unavailable``, each naming the store and the key. An
    object is seen whole or not at all, and a listing shows every ``put`` that has returned.
    """

    @property
    def location(self) -> str:
        """Where this is, for messages: ``s3://bucket/prefix`` or ``/path``. Never a secret."""
        ...

    @property
    def limits(self) -> Limits: ...

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        """Store ``body`` durably.

        ``AlreadyExists`` if ``create_only`` and the key is taken; nothing is changed then.
        """
        ...

    def get(self, key: str, *, at_most: int) -> bytes:
        """The whole object.

        ``NotFound``; ``Damaged`` if it is longer than ``at_most`` bytes (nothing more is read).
        """
        ...

    def read_into(self, key: str, buffer: memoryview) -> None:
        """Fill ``buffer`` with the object.

        ``NotFound``; ``Damaged`` if the object's length is not the buffer's.
        """
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix`` and is greater than ``after``.

        In ascending order of the key's bytes.
        """
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove these. A key that is not there is no error; a key that could not be removed is."""
        ...

    def now(self) -> datetime:
        """The store's own clock, in UTC."""
        ...
