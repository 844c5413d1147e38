"""The training of ``outlive-train.service``: systemd runs it, and the agent only watches."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from outlive.staging.messages import Mode


class Unit:
    """Nothing is started here: systemd does it once the agent is ready. The control page asks for a stop."""

    mode: Mode = "daemon"
    owns = False
    running = False

    def start(self, environ: Mapping[str, str]) -> None:
        """systemd's business."""

    def terminate(self, trainer: int | None) -> None:
        """A trainer that does not come to a boundary; it may belong to a user whom we can't signal."""
        _signal(trainer, signal.SIGTERM)

    def kill(self, trainer: int | None) -> None:
        """As :meth:`terminate`, and what it leaves is systemd's to clean up."""
        _signal(trainer, signal.SIGKILL)


class Parent(Unit):
    """The bare ``python train.py`` that started this sidecar."""

    mode: Mode = "sidecar"


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None and pid > 1:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
