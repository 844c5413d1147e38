"""TLS for the one source that asks a provider's public API, with the same deadline on every read."""

import socket
import ssl

from outlive_agent.sources.metadata_http import Bounded


class _Socket(Bounded, ssl.SSLSocket):
    pass


def wrap(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """An encrypted connection to ``host``, whose certificate is checked."""
    context = ssl.create_default_context()
    context.sslsocket_class = _Socket
    return context.wrap_socket(plain, server_hostname=host)
