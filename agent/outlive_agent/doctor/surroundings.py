"""Who may take this machine away, whether that is heard here, and how long it leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outlive_agent.doctor.finding import Finding, ok, warning
from outlive_agent.settings.values import ReclaimSettings
from outlive_agent.sources.detect import Surroundings, answers, by_environment, detect
from outlive_agent.sources.providers import PROVIDERS, Provider
from outlive_agent.units import duration_text

_SILENT: Final = {
    "aws": "in a container: HttpPutResponseHopLimit=2 on the instance; no rule against 169.254.169.254",
}
_ANYWHERE: Final = "let this machine reach its metadata server (169.254.169.254 on most), without a proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """``provider``: the cloud, if one is known. ``inside``: what the job runs in, on whatever cloud.

    ``heard``: whether its metadata server answers; None where nothing is asked. ``how``: who says so.
    """

    provider: Provider | None
    inside: Sequence[Provider]
    how: str
    heard: bool | None = None
    silenced: bool = False
    """The configuration says that nobody is to be asked."""


def look_around(settings: ReclaimSettings, environ: Mapping[str, str]) -> Around:
    """Ask as the agent does. Two seconds at most."""
    inside = [PROVIDERS[name] for name in by_environment(environ)]
    name = settings.provider
    if name == "none":
        return Around(provider=None, inside=inside, how="as configured", silenced=True)
    if name == "auto":
        return _detected(detect(endpoint=settings.endpoint), inside)
    known = PROVIDERS[name]
    if known in inside or known.heard in {"environment", "signal"}:
        others = [one for one in inside if one.name != name]
        return Around(provider=known, inside=others, how="as configured")
    return Around(
        provider=known, inside=inside, how="as configured", heard=answers(name, endpoint=settings.endpoint)
    )


def named(name: str) -> Around:
    """On another machine than the one that trains: what the job file says is all there is."""
    return Around(provider=PROVIDERS.get(name), inside=(), how="by the job file")


def provider(around: Around) -> Finding:
    """What will be heard before this machine goes."""
    if around.silenced:
        return ok("provider", "none is asked, as configured; SIGTERM, flag file and inbox are heard")
    known = around.provider or next(iter(around.inside), None)
    if known is None:
        seen = f"none known ({around.how}): SIGTERM, flag file and inbox are heard"
        return ok("provider", seen, provider=None, window_seconds=None)
    figures = {"provider": known.name, "window_seconds": known.window_seconds, "heard": around.heard}
    inside = "".join(f", in {one.title}" for one in around.inside if one is not known)
    seen = f"{known.title} ({around.how}{inside}): {announced(known)}"
    if around.heard is False:
        change = _SILENT.get(known.name, _ANYWHERE)
        return warning(
            "provider", f"{seen}; but its metadata server does not answer here", change=change, **figures
        )
    return ok("provider", seen, **figures)


def announced(known: Provider) -> str:
    """What this provider says, and how long before."""
    if known.window_seconds is None:
        return f"how long a reclaim is announced ahead is not known ({known.note})"
    if known.window_seconds == 0:
        return f"no notice ({known.note})"
    return f"a reclaim is announced about {duration_text(known.window_seconds)} ahead ({known.note})"


def _detected(found: Surroundings, inside: Sequence[Provider]) -> Around:
    if found.provider is None:
        return Around(provider=None, inside=inside, how=found.how)
    known = PROVIDERS[found.provider]
    heard = found.confirmed if known.heard == "metadata" else None
    return Around(provider=known, inside=inside, how=found.how, heard=heard)
