"""What a guard asks of whatever runs the training."""

from collections.abc import Mapping
from typing import Protocol

from outlive.staging.messages import Mode


class Supervisor(Protocol):
    """Runs, or only watches, the training command. ``ChildExited`` is posted where the command is ours."""

    @property
    def mode(self) -> Mode: ...

    @property
    def owns(self) -> bool:
        """Whether this starts the command and learns how it ended."""
        ...

    @property
    def running(self) -> bool:
        """Whether the command may still do something. Where it is not ours: False, the conversation tells."""
        ...

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the command with these variables added. ``ConfigError`` if it can't be."""
        ...

    def terminate(self, trainer: int | None) -> None:
        """Ask the command to stop (SIGTERM); ``trainer`` is the process that trains, if one is connected."""
        ...

    def kill(self, trainer: int | None) -> None:
        """End the command and all that it left behind."""
        ...
