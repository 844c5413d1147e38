"""One line with fields for systemd's journal, by its own protocol: no library is needed for it."""

import socket
from collections.abc import Mapping
from contextlib import suppress

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "outlive-agent"


class Journald:
    """For many threads: a datagram is sent whole or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    @classmethod
    def connected(cls, path: str = SOCKET) -> "Journald | None":
        """None where no journal listens, or this process can't reach it."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            return None
        return cls(sock)

    def send(self, line: str, *, priority: str, fields: Mapping[str, str]) -> bool:
        """False if it was not taken: then say it another way. Neither line nor fields hold line breaks."""
        known = {"MESSAGE": line, "PRIORITY": priority, "SYSLOG_IDENTIFIER": IDENTIFIER, **fields}
        datagram = "".join(f"{name}={value}\n" for name, value in known.items())
        with suppress(OSError):
            self._socket.send(datagram.encode(errors="replace"), socket.MSG_DONTWAIT)
            return True
        return False

    def close(self) -> None:
        """Nothing more will be said."""
        self._socket.close()
