"""What is examined: a store, a run, and the place that a machine has or will have."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outlive_agent.config import CredentialsFrom, StoreSettings
from outlive_agent.doctor.checkpoint import State
from outlive_agent.settings.values import Config

if TYPE_CHECKING:
    from outlive_agent.bootstrap.job import Job

MACHINE_KEYS: Final = Path("/etc/outlive/credentials")
"""Which the agent's unit loads."""


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


def readable_keys(store: StoreSettings, environ: Mapping[str, str]) -> tuple[StoreSettings, str]:
    """The same store with keys that can be read here, and where they are from, in words.

    By hand nobody has the credentials that systemd gives to the unit, but root can read their source.
    """
    source = store.credentials
    if source is None:
        return store, ""
    if source.env is not None:
        return store, f"from ${source.env[0]}"
    if source.file is not None:
        return store, f"from {source.file}"
    if not environ.get("CREDENTIALS_DIRECTORY") and os.access(MACHINE_KEYS, os.R_OK):
        return replace(store, credentials=CredentialsFrom(file=MACHINE_KEYS)), f"from {MACHINE_KEYS}"
    return store, "from systemd"
