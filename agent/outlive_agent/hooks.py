"""The user's own commands at a notice, a save and the end. They run beside all else: nothing waits for them.

Only the end waits a while, for what was begun. A hook that fails is one warning, and harmless.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

from outlive_agent.journal import Journal
from outlive_agent.settings.values import HookSettings
from outlive_agent.units import duration_text
from outlive_agent.verdict import code_text

_TAIL_BYTES, _LONGEST = 4096, 200
_SLICE_SECONDS, _LOOK_SECONDS = 1.0, 0.05
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT
_WAITING = {"on_notice": 8, "on_saved": 1, "on_end": 1}
"""How many may wait while one runs. Saves come by themselves, so the newest will do; a notice is rare."""
_NOT_FOR_HOOKS = (
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "LISTEN_",
    "CREDENTIALS_DIRECTORY",
    "JOURNAL_STREAM",
    "OUTLIVE_",
)
"""What is said to systemd is ours to say, and the keys to the store stay with the agent."""


class Hooks:
    """Only the deciding thread uses it. Times are seconds on CLOCK_MONOTONIC."""

    def __init__(
        self,
        settings: HookSettings,
        environ: Mapping[str, str],
        *,
        about: Mapping[str, str],
        journal: Journal,
    ) -> None:
        """``about`` is told to each of them, such as the run; ``environ`` is what they inherit."""
        clean = {name: value for name, value in environ.items() if not name.startswith(_NOT_FOR_HOOKS)}
        self._environ = {name: value for name, value in clean.items() if name not in settings.withheld}
        self._about = dict(about)
        self._seconds = settings.timeout.total_seconds()
        self._runners = {
            name: _Runner(name, command, seconds=self._seconds, journal=journal, waiting=_WAITING[name])
            for name, command in settings.commands.items()
        }

    def tell(self, **about: str) -> None:
        """From now on each of them is told this, too."""
        self._about.update({f"OUTLIVE_{name.upper()}": value for name, value in about.items()})

    def run(self, name: str, *, deadline: float | None, **facts: str | int) -> None:
        """Start this hook soon, if there is one, and after those of its name that were begun before."""
        runner = self._runners.get(name)
        if runner is None:
            return
        when = "" if deadline is None else str(int(time.time() + deadline - time.monotonic()))
        told = {f"OUTLIVE_{key.upper()}": str(value) for key, value in facts.items()}
        known = {"OUTLIVE_OUTCOME": "", "OUTLIVE_SOURCE": "", "OUTLIVE_REASON": ""}
        runner.post(
            {**self._environ, **self._about, **known, **told, "OUTLIVE_HOOK": name, "OUTLIVE_DEADLINE": when}
        )

    def close(self, *, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Wait for what was begun, for at most so long; then kill it."""
        until = time.monotonic() + min(seconds, self._seconds)
        for runner in self._runners.values():
            while not runner.wait(min(_SLICE_SECONDS, until - time.monotonic())):
                meanwhile()
                if time.monotonic() >= until:
                    runner.kill()
                    break


class _Runner:
    """One hook: one process at a time, and the newest of what has come meanwhile after it."""

    def __init__(
        self, name: str, command: tuple[str, ...], *, seconds: float, journal: Journal, waiting: int
    ) -> None:
        self._name = name
        self._command = command
        self._seconds = seconds
        self._journal = journal
        self._changed = threading.Condition()
        self._waiting: deque[dict[str, str]] = deque(maxlen=waiting)
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = False
        self._closed = False
        self._told = False
        """That it fails; it may run with every save."""

    def post(self, environ: dict[str, str]) -> None:
        with self._changed:
            self._waiting.append(environ)
            if not self._busy and not self._closed:
                self._busy = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Whether nothing runs or waits, within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, max(0.0, seconds))

    def kill(self) -> None:
        """End it now, and start it no more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            if self._process is not None:
                self._warn("was killed: the agent ends")
                _kill(self._process)

    def _run(self) -> None:
        while (environ := self._take()) is not None:
            try:
                self._once(environ)
            except OSError as error:
                self._warn(f"can't be started: {(error.strerror or str(error)).lower()}")

    def _take(self) -> dict[str, str] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            self._changed.notify_all()
            return None

    def _once(self, environ: dict[str, str]) -> None:
        # A file, not a pipe: what a hook leaves running in the background may keep a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with self._changed:
                self._process = process
            ended = _ends(process, self._seconds)
            with self._changed:
                _kill(process)  # and what it has left in the background: nobody else would ever end that
                self._process = None
            code = process.wait()
            if ended and code == 0:
                self._told = False
            elif not self._closed:
                how = f"ended with {code_text(code)}" if ended else f"was killed after {self._limit}"
                self._warn(f"{how}{_last_line(output)}")

    @property
    def _limit(self) -> str:
        return duration_text(self._seconds)

    def _warn(self, what: str) -> None:
        if not self._told:
            self._told = True
            self._journal.warning(f"the hook {self._name} {what}")


def _ends(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it ends by itself within so many seconds. It is not reaped: its number stays its own."""
    until, pause = time.monotonic() + seconds, 0.001
    with suppress(ChildProcessError):  # SIGCHLD is ignored here, so the kernel reaps
        while os.waitid(os.P_PID, process.pid, _LOOK) is None:
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_SECONDS)
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """With its whole group. It is not reaped yet, so the number is still its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(output: IO[bytes]) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _TAIL_BYTES))
    lines = output.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(c if c.isprintable() else "?" for c in last)[:_LONGEST]
    return f": {shown}" if shown else ""
