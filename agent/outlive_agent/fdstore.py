"""systemd's file descriptor store: what it holds while no agent lives, and gives to the next one."""

import os
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from outlive_agent.notify import Notify

FIRST_FD = 3
MOST = 1024
"""More than any unit would be given."""


class FdStore:
    """Descriptors by name. ``names`` is what systemd holds, as far as we know."""

    def __init__(self, notify: Notify, *, names: set[str]) -> None:
        self._notify = notify
        self.names = names

    def hold(self, wanted: Mapping[str, int]) -> None:
        """Let systemd hold exactly these; what is new goes in, in order, before anything old goes out.

        A name stands for one memory file for ever. ``OSError``: the old is still there, and of the new what
        came before the one that failed.
        """
        for name, fd in wanted.items():
            if name not in self.names and self._notify.store(name, fd):
                self.names.add(name)
        for name in sorted(self.names - wanted.keys()):
            self._notify.discard(name)
            self.names.discard(name)


def inherited(environ: MutableMapping[str, str]) -> dict[str, int]:
    """The descriptors that systemd gave this process, by name. They are the caller's, and told only once."""
    count = environ.pop("LISTEN_FDS", "")
    pid = environ.pop("LISTEN_PID", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal() or len(count) > len(str(MOST)):
        return {}
    found: dict[str, int] = {}
    for index in range(min(int(count), MOST)):
        name, fd = names[index] if index < len(names) else "", FIRST_FD + index
        with suppress(OSError):  # it was announced, and is not open
            os.set_inheritable(fd, False)
            if name in found:  # nothing of ours comes twice
                os.close(fd)
            else:
                found[name] = fd
    return found
