"""Opens the store as an agent does, but with a doctor's patience: what can't be reached is told soon."""

import threading
from collections.abc import Mapping
from typing import Final

from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.objects.retry import Backoff, Retrying
from outlive.objects.sealed import Sealed
from outlive_agent.settings.credentials import credentials_for, seal_for
from outlive_agent.settings.values import StoreSettings

BACKOFF: Final = Backoff(first_seconds=0.3, most_seconds=1.0, deadline_seconds=3.0)
"""A store that stumbles once is everyday life."""


class Opened:
    """One store, and two ways to it. ``ConfigError`` before anything is asked.

    ``store`` ends with ``closing``; ``to_clear`` is for what follows. ``bare`` has no seal and tries once.
    """

    def __init__(self, settings: StoreSettings, environ: Mapping[str, str]) -> None:
        opened = open_store(
            settings.location,
            credentials=credentials_for(settings, environ),
            endpoint=settings.endpoint,
            region=settings.region,
            ca_bundle=None if settings.ca_bundle is None else str(settings.ca_bundle),
        )
        seal = seal_for(settings, environ)
        self.bare: ObjectStore = opened.inner if isinstance(opened, Retrying) else opened
        self.closing = threading.Event()
        self._retrying = Retrying(self.bare, backoff=BACKOFF, closing=self.closing)
        self.store: ObjectStore = self._retrying if seal is None else Sealed(self._retrying, seal)
        self.to_clear: ObjectStore = Retrying(self.bare, backoff=BACKOFF)

    def cut(self) -> None:
        """End the requests that are under way."""
        self._retrying.cut()
