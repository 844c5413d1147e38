"""How the machine is taken away in a rehearsal: as its provider would."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outlive.errors import ConfigError
from outlive.store.requests import put_request
from outlive_agent.emulate.answers import ANSWERS
from outlive_agent.emulate.server import Emulator
from outlive_agent.rehearse.leg import Running
from outlive_agent.sources.detect import by_environment, detect
from outlive_agent.sources.providers import PROVIDERS, Provider

By = Literal["notice", "sigterm", "sigkill"]
WAYS: tuple[By, ...] = ("notice", "sigterm", "sigkill")
LEAST_SECONDS, BYTES_A_SECOND = 10.0, 25_000_000
"""The window in a rehearsal: what any disk needs, so that nobody waits for the provider's two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """``provider``: None where no cloud is known; then the notice comes through the inbox."""

    by: By
    provider: Provider | None
    found: str
    """How the provider is known, for people."""

    @property
    def emulated(self) -> str | None:
        """The provider whose metadata server announces it."""
        if self.by == "notice" and self.provider is not None and self.provider.name in ANSWERS:
            return self.provider.name if self.provider.heard == "metadata" else None
        return None

    def window_seconds(self, size: int) -> float:
        """How long ahead it is announced, for a state of that many bytes: never more than in earnest."""
        enough = LEAST_SECONDS + size / BYTES_A_SECOND
        given = self.provider.window_seconds if self.provider is not None else None
        return min(enough, given) if given else enough

    @property
    def text(self) -> str:
        """What happens to the machine."""
        if self.by == "sigkill":
            return "killed without a word"
        if self.by == "sigterm":
            return "SIGTERM"
        if self.emulated is not None and self.provider is not None:
            return f"{self.provider.title}'s notice, from an emulated metadata server"
        return "a notice in the run's inbox"


Strike: TypeAlias = Callable[[Running], None]
"""Takes the machine of a leg away."""


def choose(by: By | None, provider: str) -> Way:
    """The way of the provider that is configured, or that this machine is at; takes two seconds at most."""
    found = ""
    if provider == "auto":
        around = by_environment(os.environ)
        if around:
            provider, found = around[0], "by its environment"
        else:
            where = detect()
            provider, found = where.provider or "none", where.how
    elif provider != "none":
        found = "as configured"
    known = PROVIDERS.get(provider)
    if known is None and provider != "none":
        raise ConfigError(
            f"there is no provider {provider!r}", hint=f"one of: none, {', '.join(sorted(PROVIDERS))}"
        )
    return Way(by=by or _by(known), provider=known, found=found or "no provider is known")


@contextmanager
def prepared(way: Way, *, size: int) -> Iterator[tuple[Mapping[str, str], Strike]]:
    """What the leg needs in its environment to hear of it, and how to strike."""
    if way.by == "sigkill":
        yield ({}, lambda running: running.kill())
    elif way.by == "sigterm":
        yield ({}, lambda running: os.kill(running.pid, signal.SIGTERM))
    elif way.emulated is None:
        yield ({}, _into_inbox)
    else:
        window = way.window_seconds(size)
        with Emulator(way.emulated) as emulator:
            where = {"OUTLIVE_PROVIDER": way.emulated, "OUTLIVE_METADATA_ENDPOINT": emulator.url}
            yield (where, lambda running: emulator.stage.announce(window))


def _by(provider: Provider | None) -> By:
    if provider is None or provider.heard in {"metadata", "api"}:
        return "notice"
    return "sigterm" if provider.window_seconds else "sigkill"


def _into_inbox(running: Running) -> None:
    """Without a deadline: it may be any moment, so the last save comes at once."""
    site = running.site
    put_request(site.store(), site.run, "reclaim", life=site.life(), by="outlive rehearse")
