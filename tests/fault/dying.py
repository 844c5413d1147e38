"""Runs a program that dies by SIGKILL right before its n-th effect on anything outside its memory.

    python dying.py N COUNT (-m MODULE | SCRIPT) [ARGUMENTS]

Effects: a file opened to be written, renamed, linked or removed, a folder made, a packet sent, a program
started; of a training also each memory file and each copy into one. What lies between two of them is memory,
which dies anyway: so "before the n-th" for all n is every moment that can be told apart from outside. COUNT
is a file that gets the number of effects if nobody dies (N = 0).
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = frozenset(
    {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "socket.sendmsg", "subprocess.Popen"}
)


class Death:
    """Comes before effect number `at`, counted from 1; never if that is 0."""

    def __init__(self, at: int, count: Path) -> None:
        self._at = at
        self._count = count
        self._seen = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def effect(self) -> None:
        """One is about to happen."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._seen += 1
            if self._seen == self._at:
                os.kill(self._pid, signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What Python tells of the calls it makes."""
        if event in EVENTS or (event == "open" and _writes(arguments)):
            self.effect()

    def before(self, holder: Any, name: str) -> None:
        """Calls of this function are effects, too."""
        function: Callable[..., Any] = getattr(holder, name)

        @wraps(function)
        def counted(*arguments: Any, **more: Any) -> Any:
            self.effect()
            return function(*arguments, **more)

        setattr(holder, name, counted)

    def write_down(self) -> None:
        """How many there were."""
        seen, self._at = self._seen, 0
        self._count.write_text(str(seen))


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode, flags = arguments
    if str(path).startswith(("/dev/", "/proc/")):
        return False
    return (
        bool(flags & WRITES) if isinstance(flags, int) else any(letter in (mode or "") for letter in "wax+")
    )


def main() -> None:
    at, count, *rest = sys.argv[1:]
    death = Death(int(at), Path(count))
    module = rest[0] == "-m"
    if module:
        rest = rest[1:]
    else:
        import outlive.staging.arena
        import outlive.train.copying
        import outlive.train.taking

        death.before(outlive.staging.arena.Arena, "create")
        death.before(outlive.train.taking, "copy")
        death.before(outlive.train.copying.Copying, "work")
    sys.argv = rest
    sys.addaudithook(death.audit)
    try:
        if module:
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(rest[0]).parent)
            runpy.run_path(rest[0], run_name="__main__")
    finally:
        death.write_down()


if __name__ == "__main__":
    main()
