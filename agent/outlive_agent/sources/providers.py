"""Every provider that is known: what it says before it takes a machine, how long before, and who says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """``window_seconds``: from the first word to the end, as far as is known; None where nobody says.

    ``heard``: ``metadata`` is polled here; ``signal`` is a SIGTERM from systemd or the container's runtime,
    which ``outlive exec`` and the units hear anyway; ``environment`` is read once.
    """

    name: str
    title: str
    heard: Literal["metadata", "signal", "environment", "api"]
    window_seconds: float | None
    note: str


def _signal(name: str, title: str, window: float | None, note: str) -> Provider:
    return Provider(name=name, title=title, heard="signal", window_seconds=window, note=note)


def _metadata(name: str, title: str, window: float | None, note: str) -> Provider:
    return Provider(name=name, title=title, heard="metadata", window_seconds=window, note=note)


_ALL: Final = (
    _metadata("aws", "AWS EC2", 120, "best effort; none before a hibernation"),
    _metadata("gcp", "Google Compute Engine", 30, "150 s with --preemption-notice-duration=120s"),
    _metadata("azure", "Azure", 30, "at least, by best effort"),
    _metadata("alibaba", "Alibaba Cloud ECS", 300, "as users tell"),
    _metadata("tencent", "Tencent Cloud CVM", None, "undocumented"),
    _metadata("byteplus", "BytePlus and Volcengine", 300, "documented"),
    Provider(
        name="digitalocean",
        title="DigitalOcean",
        heard="api",
        window_seconds=7200,
        note="normally, by mail to the account alone: `outlive reclaim RUN --in 2h` passes it on",
    ),
    Provider(
        name="slurm",
        title="Slurm",
        heard="environment",
        window_seconds=30,
        note="from SIGTERM to SIGKILL (KillWait); the end of the job's time is known from the start",
    ),
    Provider(
        name="kubernetes",
        title="Kubernetes",
        heard="environment",
        window_seconds=30,
        note="terminationGracePeriodSeconds; say it with OUTLIVE_STOP_WINDOW",
    ),
    _signal("nebius", "Nebius", 60, "SIGTERM to the machine's init"),
    _signal("yandex", "Yandex Cloud", 30, "ACPI; stopped after 24 h at the latest"),
    _signal("ibm", "IBM Cloud VPC", 30, "best effort, a shutdown of the system"),
    _signal("ovh", "OVHcloud", None, "no notice is known"),
    _signal("runpod", "RunPod", 5, "no longer documented"),
    _signal("vast", "Vast.ai", 0, "processes are killed without a word"),
)
PROVIDERS: Final[Mapping[str, Provider]] = {provider.name: provider for provider in _ALL}
