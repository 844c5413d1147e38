"""A program that runs beside the tests and never outlives them, however they end."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Program:
    """A child process with its output in a file. The kernel kills it when this process dies."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = Path(command[0]).name
        self._log = log
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise RuntimeError("setpriv is missing: it is part of util-linux")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [setpriv, "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment} if environment else None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Return once it is; raise with the end of its output if it ends before, or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is not ready after {seconds:.0f} s:\n{self._tail()}")
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it: what it held in its folder is thrown away anyway."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on.

    Below the range from which the kernel takes ports for connections: one of those could take it meanwhile.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
