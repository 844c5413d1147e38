"""moto, with one thing put right: it looks whether a key is taken and writes it in two steps, S3 in one.

python moto_server.py PORT
"""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_one_at_a_time = threading.Lock()


class CreateOnly:
    """Conditional puts one after the other, each once its body is here, so that a slow one holds up none."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT" or "HTTP_IF_NONE_MATCH" not in environ:
            return self._answer(environ, start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with _one_at_a_time:
            return list(self._answer({**environ, "wsgi.input": io.BytesIO(body)}, start))

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        answer: Iterable[bytes] = self._application(environ, start)
        return answer


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    application = CreateOnly(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
