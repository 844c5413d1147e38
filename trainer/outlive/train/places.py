"""Where ``attach`` may be called: once for a run, in the process that trains, and left when it is over."""

import multiprocessing
from typing import Any, Protocol

from torch.utils.data import get_worker_info

from outlive.errors import ConfigError


class Leavable(Protocol):
    """An attached run, as far as this module knows it."""

    @property
    def asked(self) -> tuple[str | None, str | None]:
        """The run and the store that the script named."""

    def drop(self) -> None:
        """Let go of it without a save."""


_open: list[Leavable] = []
"""Runs that were attached and that neither a `with` block nor close() has left so far."""


def check_process() -> None:
    """``ConfigError`` in a process that only helps one which trains: there it would take the run over."""
    process: Any = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        raise ConfigError(
            "a process that this script starts imports it again, and so calls outlive.attach once more",
            hint="put the training into a function, called below: if __name__ == '__main__'",
        )
    if get_worker_info() is not None:
        raise ConfigError(
            "outlive.attach is called in a worker of a DataLoader", hint="attach in the process that trains"
        )


def attached(run: Leavable) -> None:
    """It is open from now on."""
    _open.append(run)


def left(run: Leavable) -> None:
    """It is no longer; harmless twice."""
    if run in _open:
        _open.remove(run)


def drop_former(asked: tuple[str | None, str | None]) -> None:
    """Let go of this run if the script has attached it before, as a notebook's cell does that runs again."""
    for run in [run for run in _open if run.asked == asked]:
        run.drop()
