"""Signals become a flag that the next boundary reads. Nothing else happens in a handler.

A handler runs between any two bytecodes: saving, printing or logging there re-enters locks of the loop. (A
person at a terminal gets one line, written without any.)
"""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

EXIT_SAVE_FAILED = 74
EXIT_RESUME = 75
EXIT_SUPERSEDED = 76
EXIT_CONFIG = 78


class Interrupted(SystemExit):
    """A second Ctrl-C: the loop ends where it stands. A wish, not a fault, so nobody wants a traceback."""

    def __init__(self) -> None:
        super().__init__(EXIT_SAVE_FAILED)

    def __str__(self) -> str:
        return "Ctrl-C again"


_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_HEARD_YOU = b"outlive: SIGINT: saving and stopping at the next step; once more: stopping at once, unsaved\n"


class Signals:
    """SIGTERM and SIGINT ask the loop to save and stop; SIGUSR1 (Slurm's warning) to save and go on."""

    def __init__(self) -> None:
        self.received: int = 0
        """The number of the first signal that asked for a stop; 0 = none did."""
        self.save = False
        """SIGUSR1 came; whoever serves it sets this back."""
        self.alone = False
        """Nobody else on this terminal answers a Ctrl-C, so this process does."""
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}

    def install(self) -> bool:
        """False where Python does not allow it: in any thread but the main one."""
        if threading.current_thread() is not threading.main_thread():
            return False
        for number in _HEARD:
            self._before[number] = signal.signal(number, self._flag)
        return True

    def remove(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._flag:
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def _flag(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A process that the user forked inherits this; there it would make terminate() do nothing.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if number == signal.SIGUSR1:
            self.save = True
            return
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise Interrupted
        if not self.received:
            self.received = number
            if number == signal.SIGINT and self.alone:
                with suppress(OSError):  # a closed terminal
                    os.write(2, _HEARD_YOU)  # takes no lock, unlike print()
