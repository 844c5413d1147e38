"""Every error outlive raises on purpose. Each says what, where, and what to do next.

::

    OutliveError
    ├── ConfigError               a setting is wrong; nothing was touched
    ├── StoreError                the object store did not do what was asked
    │   ├── NotFound              no such object
    │   ├── AlreadyExists         a create-only put found the key taken
    │   ├── Denied                the keys are wrong or may not do this
    │   ├── NoBucket              the bucket or the directory is not there
    │   ├── StoreFull             no space left
    │   └── Unavailable           unreachable, overloaded or silent; trying again may help
    │       └── Throttled         too many requests at once, by the store's own words
    ├── Damaged                   bytes in the store are missing, short or altered
    ├── Cancelled                 a transfer was stopped because its caller asked for it
    ├── Superseded                a newer life of the run exists; this one must stop
    ├── StateError                the training state can't be saved, or doesn't fit what was saved
    └── ProtocolError             trainer and agent don't understand each other
"""

import sys


class OutliveError(Exception):
    """What went wrong and where (``str``), and what to do next (``hint``)."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint and sys.version_info >= (3, 11):
            self.add_note(f"Try: {hint}")  # a traceback shows it


class ConfigError(OutliveError):
    """A setting is wrong. All problems at once, one a line; nothing was touched."""


class StoreError(OutliveError):
    """The object store did not do what was asked."""


class NotFound(StoreError):
    """There is no such object."""


class AlreadyExists(StoreError):
    """A create-only put found the key taken (HTTP 409 or 412)."""


class Denied(StoreError):
    """The credentials are wrong, expired, or may not do this."""


class NoBucket(StoreError):
    """The bucket, or the directory above the store, does not exist."""


class StoreFull(StoreError):
    """No space is left where the store keeps its bytes."""


class Unavailable(StoreError):
    """The store is unreachable, overloaded, or went silent. Trying again may help."""


class Throttled(Unavailable):
    """The store takes fewer requests than it gets (HTTP 429, 503, SlowDown). Slower may help."""


class Damaged(OutliveError):
    """Bytes in the store are missing, short, or altered."""


class Cancelled(OutliveError):
    """A transfer was stopped because its caller asked for it. What it had sent is ignored by readers."""


class Superseded(OutliveError):
    """A newer life of this run exists. This one must stop and delete nothing."""


class StateError(OutliveError):
    """The training state can't be saved, or what was saved doesn't fit this code."""


class ProtocolError(OutliveError):
    """Trainer and agent don't understand each other."""
