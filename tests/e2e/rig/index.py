"""A package index for pip, over HTTP, that can vanish in the middle of a download."""

import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from e2e.rig.cloud import Cloud
from e2e.rig.packages import Equipment

PORT = 8080
PIP_CONF = f"""[global]
index-url = http://cloud.test:{PORT}/simple/
trusted-host = cloud.test
disable-pip-version-check = true
retries = 0
"""
"""What makes a guest's pip use the index."""


class PackageIndex:
    """The wheels of some folders, as PyPI would offer them. Guests that have `equipment` use no other."""

    def __init__(self, cloud: Cloud, folders: Sequence[Path]) -> None:
        self.equipment = Equipment(files={"/etc/pip.conf": PIP_CONF})
        self.wheels = {wheel.name: wheel for folder in folders for wheel in folder.glob("*.whl")}
        self._breaks_in = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="rig-index", daemon=True)
        self._thread.start()
        self._cable = cloud.publish(PORT, target=("127.0.0.1", self._server.server_port))

    def vanish_in(self, project: str) -> None:
        """Half of that project's wheel goes out; from then on the index refuses connections."""
        self._breaks_in = project

    def come_back(self) -> None:
        """Everything can be had again."""
        self._breaks_in = ""
        self._cable.mend()

    @property
    def vanished(self) -> bool:
        """Whether that has happened."""
        return self._cable.is_cut

    def page(self, project: str) -> bytes | None:
        """The links to a project's wheels."""
        found = [name for name in self.wheels if _project(name) == project]
        links = "".join(f'<a href="/files/{name}">{name}</a>\n' for name in found)
        return f"<!DOCTYPE html>\n<html><body>{links}</body></html>".encode() if found else None

    def cut_short(self, name: str) -> bool:
        """Whether this wheel is the one in which the index vanishes."""
        return _project(name) == self._breaks_in

    def vanish(self) -> None:
        """Break every connection and refuse new ones."""
        self._cable.cut()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place, _, name = self.path.strip("/").partition("/")
                if place == "files" and name in index.wheels:
                    self._answer(index.wheels[name].read_bytes(), cut=index.cut_short(name))
                elif place == "simple" and (page := index.page(name)) is not None:
                    self._answer(page, cut=False)
                else:
                    self.send_error(404)

            def _answer(self, content: bytes, *, cut: bool) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.wfile.flush()
                    index.vanish()

            def log_message(self, format: str, *args: object) -> None:
                """Tests look at what pip says instead."""

        return Handler

    def __enter__(self) -> "PackageIndex":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cable.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _project(wheel: str) -> str:
    """The name in a wheel's file name, as an index writes it."""
    return re.sub(r"[-_.]+", "-", wheel.partition("-")[0]).lower()
