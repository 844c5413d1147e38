"""What is examined: a store, a run, and the place that a machine has or will have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlive_agent.doctor.checkpoint import State
from outlive_agent.settings.values import Config, StoreSettings

if TYPE_CHECKING:
    from outlive_agent.bootstrap.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """``run`` may be empty. ``job``: its file, looked at from a desk; else this machine is meant."""

    config: Config
    run: str
    job: "Job | None" = None
    job_directory: Path = Path()
    state: State | None = None
    window_seconds: float | None = None

    @property
    def machine(self) -> bool:
        return self.job is None

    @property
    def store(self) -> StoreSettings:
        return self.config.store


def keys_source(store: StoreSettings) -> str:
    """Where the configuration says that the keys are, in words; empty if it doesn't."""
    source = store.credentials
    if source is None:
        return ""
    if source.env is not None:
        return f"from ${source.env[0]}"
    return f"from {source.file}" if source.file is not None else "those that the unit loads"
