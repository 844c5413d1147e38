"""Opens the store that a verb reads, and says on stderr when it has to wait for it."""

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from outlive_agent.config import StoreSettings, for_reading, open_configured_store
from outlive_agent.units import duration_text

if TYPE_CHECKING:
    from outlive.objects.interface import ObjectStore
    from outlive.objects.retry import Retry


def settings_for(args: Namespace, location: str | None = None) -> StoreSettings:
    """Where the verb looks: its own argument, else ``--store``, and so on downwards."""
    place = location or args.store
    return for_reading(place, args.config, os.environ, endpoint=args.endpoint, region=args.region)


def open_place(settings: StoreSettings) -> "ObjectStore":
    """The store there. Nothing is contacted yet."""
    return open_configured_store(settings, os.environ, on_retry=_waiting)


def open_for(args: Namespace) -> "ObjectStore":
    """The store that this verb's arguments mean."""
    return open_place(settings_for(args))


def _waiting(retry: "Retry") -> None:
    """One line a failed attempt, so that nobody wonders why nothing happens."""
    delay = duration_text(retry.delay_seconds)
    print(f"Waiting: {retry.error} (attempt {retry.attempt}, again in {delay})", file=sys.stderr)
