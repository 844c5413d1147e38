"""As much of S3 as outlive needs, in memory, behind a scripted server: to fail in one exact way."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from urllib.parse import unquote
from xml.sax.saxutils import escape

from fakes.scripted import Answer, Request, error


@dataclass
class SmallS3:
    """``fault`` answers in the server's place, where it gives an answer. ``ahead``: its clock's error.

    ``age``: how old these objects are, by its own clock.
    """

    fault: Callable[[Request], Answer | None] = lambda request: None
    ahead: timedelta = timedelta()
    objects: dict[str, bytes] = field(default_factory=dict)
    age: dict[str, timedelta] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Answer:
        answer = self.fault(request)
        if answer is None:
            with self.lock:
                answer = self._answer(request)
        date = format_datetime(datetime.now(timezone.utc) + self.ahead, usegmt=True)
        return Answer(
            status=answer.status,
            headers={**answer.headers, "Date": date},
            pieces=answer.pieces,
            length=answer.length,
        )

    def _answer(self, request: Request) -> Answer:
        key = request.path.strip("/").partition("/")[2]
        if request.method == "PUT":
            if key in self.objects and request.headers.get("if-none-match") == "*":
                return error(412, "PreconditionFailed")
            self.objects[key] = request.body
            return Answer()
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return Answer(status=204)
        if request.method == "POST":  # ?delete
            for piece in request.body.decode().split("<Key>")[1:]:
                self.objects.pop(piece.partition("<")[0], None)
            return _xml("<DeleteResult/>")
        if key:
            held = self.objects.get(key)
            return error(404, "NoSuchKey") if held is None else Answer(pieces=[held], length=len(held))
        return self._listing(request)

    def _listing(self, request: Request) -> Answer:
        prefix, after = (unquote(request.query.get(name, "")) for name in ("prefix", "start-after"))
        now = datetime.now(timezone.utc) + self.ahead
        none = timedelta()
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><LastModified>"
            f"{now - self.age.get(key, none):%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for key, body in sorted(self.objects.items())
            if key.startswith(prefix) and key > after
        )
        return _xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>")


def _xml(text: str) -> Answer:
    return Answer(pieces=[text.encode()], length=len(text.encode()))
