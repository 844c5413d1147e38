"""The command of ``outlive exec``: a child in a session of its own, which leaves nothing behind."""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from outlive.errors import ConfigError
from outlive.staging.messages import Mode
from outlive_agent.events import ChildExited, Post

_PR_SET_PDEATHSIG = 1


class Child:
    """A session of its own, so that Ctrl-C reaches the agent only, which saves and then stops the command.

    If the agent is killed the kernel sends the command SIGTERM, on which a trainer saves through a sidecar.
    """

    mode: Mode = "exec"
    owns = True

    def __init__(self, command: Sequence[str], *, post: Post, environ: Mapping[str, str]) -> None:
        self._command = list(command)
        self._post = post
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    @property
    def running(self) -> bool:
        """False before the start and once ``ChildExited`` is posted."""
        return self._process is not None

    def start(self, environ: Mapping[str, str]) -> None:
        """Must be called from the main thread: the kernel's death signal follows the thread that forked."""
        agent = os.getpid()

        def die_with_agent() -> None:
            # Until the command has taken over, our own handler would swallow the signal.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != agent:  # it died before the line above
                os.kill(os.getpid(), signal.SIGTERM)

        try:
            process = subprocess.Popen(  # noqa: S603 - to run the user's command is what we are for
                self._command,
                env={**self._environ, **environ},
                start_new_session=True,
                preexec_fn=die_with_agent,
            )
        except OSError as error:
            raise ConfigError(
                f"{self._command[0]} can't be started: {error.strerror}",
                hint="check the command after '--'",
            ) from error
        self._process = process
        threading.Thread(target=self._wait, args=(process,), name="child", daemon=True).start()

    def terminate(self, trainer: int | None) -> None:
        """To the process that trains, which need not be the command itself, else to the command."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(trainer or self._process.pid, signal.SIGTERM)

    def kill(self, trainer: int | None) -> None:
        """SIGKILL to the command's whole process group."""
        if self._process is not None:
            _kill_group(self._process.pid)

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        # Not reaped yet: as long as the zombie is there its number can't become that of a stranger's group.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _kill_group(process.pid)
        code = process.wait()
        self._process = None
        self._post(ChildExited(code=code))


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
