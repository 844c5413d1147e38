"""What a checked configuration holds. Every default is here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from outlive.store.retention import Keep
from outlive_agent.units import duration_text

PROVIDERS = (
    "auto",
    "none",
    "aws",
    "gcp",
    "azure",
    "alibaba",
    "tencent",
    "byteplus",
    "digitalocean",
    "kubernetes",
    "slurm",
    "nebius",
    "yandex",
    "ibm",
    "ovh",
    "runpod",
    "vast",
)
"""``auto`` finds out where it runs; ``none`` asks no metadata server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsFrom:
    """Where the store's keys are to be found; exactly one is set. Never the keys themselves."""

    env: tuple[str, ...] | None = None
    """Names of environment variables: key id, secret key and, where there is one, session token."""
    file: Path | None = None
    systemd: str | None = None
    """The name of a systemd credential (``LoadCredential=``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which object store. ``origin`` says where the location was given, for messages."""

    location: str
    endpoint: str | None = None
    region: str | None = None
    ca_bundle: Path | None = None
    credentials: CredentialsFrom | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """How often to save: so many steps, so much time, or (neither is set) as the measured cost advises."""

    steps: int | None = None
    duration: timedelta | None = None

    @property
    def auto(self) -> bool:
        return self.steps is None and self.duration is None

    def __str__(self) -> str:
        if self.steps is not None:
            return f"{self.steps} step{'s' if self.steps > 1 else ''}"
        return "auto" if self.duration is None else duration_text(self.duration)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSettings:
    """When to save and what to keep."""

    every: Every = field(default_factory=Every)
    keep: Keep = field(default_factory=Keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """The command, and how it is run."""

    command: tuple[str, ...]
    user: str | None = None
    restarts: int = 3
    """How many crashes in a row are answered by a restart."""
    stop_grace: timedelta = timedelta(seconds=30)
    """How long the command may take to stop once asked."""
    directory: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSettings:
    """Who may announce a reclaim."""

    provider: str = "auto"
    endpoint: str | None = None
    """Where the provider's metadata server is, if not at its usual place: for rehearsals."""
    acknowledge: bool = False
    """Whether Azure is told that it may begin once everything is saved."""
    token_file: Path | None = None
    """Holds a token of DigitalOcean's API, to watch the Droplet with."""
    flag_file: Path | None = Path("/run/outlive/checkpoint-now")
    inbox: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """The user's own commands, and how long each may take. ``withheld``: variables they do not inherit."""

    on_notice: tuple[str, ...] | None = None
    on_saved: tuple[str, ...] | None = None
    on_end: tuple[str, ...] | None = None
    timeout: timedelta = timedelta(seconds=30)
    requeue: str = "never"
    """What is done by itself about the next machine: nothing."""
    withheld: tuple[str, ...] = ()

    @property
    def commands(self) -> Mapping[str, tuple[str, ...]]:
        """Those that there are, by name."""
        every = {"on_notice": self.on_notice, "on_saved": self.on_saved, "on_end": self.on_end}
        return {name: command for name, command in every.items() if command is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set, checked."""

    run: str
    store: StoreSettings
    save: SaveSettings = field(default_factory=SaveSettings)
    training: TrainingSettings | None = None
    reclaim: ReclaimSettings = field(default_factory=ReclaimSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
