"""Google Compute Engine: ``preempted`` by a GET that hangs until it changes, and maintenance of the host."""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from outlive_agent.notice import Notice
from outlive_agent.sources.findings import Findings
from outlive_agent.sources.metadata_http import SECONDS, Answer, Metadata, NoAnswer, refusal
from outlive_agent.sources.polling import Key
from outlive_agent.sources.times import iso_time, seconds_until

URL = "http://169.254.169.254"
"""By address: while a machine is preempted its resolver may already be gone."""
HEADERS = {"Metadata-Flavor": "Google", "Host": "metadata.google.internal"}
HANG_SECONDS = 30
"""How long the server is asked to hold a question; the other keys are asked in between."""
NOTICE_SECONDS = 30.0
"""Without the 120 s option the power button is pressed at once, and 30 s later the machine is off."""
NEAR_SECONDS = 15 * 60.0
BASE = "/computeMetadata/v1/instance"


class Gcp:
    """Reads what Compute Engine announces. ``notice_seconds``: what was ordered for this machine."""

    name = "gcp"
    period = 1.0
    longest_wait = 5.0

    def __init__(
        self,
        url: str = URL,
        *,
        notice_seconds: float = NOTICE_SECONDS,
        hang_seconds: int = HANG_SECONDS,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = Metadata(url, headers=HEADERS, seconds=seconds)
        self._findings = Findings(self.name, clock=clock)
        self._notice_seconds = notice_seconds
        self._hang_seconds = hang_seconds
        self._seconds = seconds
        self._etag: str | None = None
        self._previous: str | None = None
        self.keys = (Key(look=self.preempted), Key(look=self.maintenance))

    def close(self) -> None:
        """Hang up."""
        self._server.close()

    def preempted(self) -> Sequence[Notice]:
        """Asks plainly until the value has been the same twice; then the question hangs until it changes.

        With ``last_etag`` no change is missed between two questions, nor before the first.
        """
        path, seconds = f"{BASE}/preempted", self._seconds
        if self._etag is not None:
            wait = f"?wait_for_change=true&last_etag={self._etag}&timeout_sec={self._hang_seconds}"
            path, seconds = path + wait, self._hang_seconds + self._seconds
        self._etag, previous, self._previous = None, self._previous, None
        answer = self._get(path, seconds=seconds)
        said = answer.text.strip('"').upper()
        if said not in {"TRUE", "FALSE"}:
            raise NoAnswer("instance/preempted is neither TRUE nor FALSE")
        self._previous = said
        etag = answer.headers.get("etag", "")
        if previous == said and etag.isalnum() and etag.isascii():
            self._etag = etag
        if said == "FALSE":
            return []
        return [self._findings.within("reclaim", "preempted", seconds=self._notice_seconds)]

    def maintenance(self) -> Sequence[Notice]:
        """Work on the host: a hint, until the machine is known to be stopped for it soon."""
        answer = self._get(f"{BASE}/maintenance-event")
        event = answer.text.strip('"').upper()
        if event == "NONE" or not event.endswith("_ON_HOST_MAINTENANCE"):
            return self._upcoming()
        planned = self._upcoming()
        if event.startswith("TERMINATE") and any(notice.kind == "reclaim" for notice in planned):
            return planned
        return [self._findings.within("hint", event.lower(), seconds=None), *planned]

    def _upcoming(self) -> Sequence[Notice]:
        """Only a 200 with a window decides; everything else means that nothing is known."""
        answer = self._server.get(f"{BASE}/upcoming-maintenance?alt=json")
        try:
            said = json.loads(answer.body) if answer.status == 200 else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, Mapping):
            return []
        begins = said.get("window_start_time") or said.get("windowStartTime")
        status = said.get("maintenance_status") or said.get("maintenanceStatus")
        moment = iso_time(begins) if isinstance(begins, str) else None
        if moment is None or status not in {None, "PENDING", "ONGOING"}:
            return []
        what = f"maintenance@{begins}"
        if seconds_until(moment, answer) > NEAR_SECONDS:
            found = self._findings.notice("hint", f"{what}:early", moment=moment, answer=answer)
        else:
            found = self._findings.notice("reclaim", what, moment=moment, answer=answer)
        return [found] if found else []

    def _get(self, path: str, *, seconds: float | None = None) -> Answer:
        answer = self._server.get(path, seconds=seconds)
        if answer.status != 200:
            raise refusal(answer)
        return answer
