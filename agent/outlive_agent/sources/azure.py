"""Azure: Scheduled Events of this machine and of no other, once a second as its documentation advises."""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from outlive_agent.notice import Kind, Notice
from outlive_agent.sources.findings import Findings
from outlive_agent.sources.metadata_http import SECONDS, Answer, Metadata, NoAnswer, refusal
from outlive_agent.sources.polling import Key
from outlive_agent.sources.times import mail_time

URL = "http://169.254.169.254"
HEADERS = {"Metadata": "true"}
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-12-13&format=text"
FIRST_SECONDS = 130.0
"""The first question ever switches the feature on, which takes up to two minutes."""
UPDATE_SECONDS = 70.0
"""For so long it may say that it is being updated (410)."""
EVENTS_THAT_END: Mapping[str, float] = {
    "Preempt": 30.0,
    "Terminate": 300.0,
    "Redeploy": 600.0,
    "Reboot": 900.0,
}
"""After these the memory is gone; the seconds are the shortest notice where no time is named."""


class Azure:
    """Reads Scheduled Events. Approves of them only if ``acknowledge``, and not before all is safe."""

    name = "azure"
    period = 1.0
    longest_wait = 5.0

    def __init__(
        self,
        url: str = URL,
        *,
        acknowledge: bool = False,
        seconds: float = SECONDS,
        first_seconds: float = FIRST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = Metadata(url, headers=HEADERS, seconds=seconds)
        self._first_seconds = first_seconds
        self._url = url
        self._findings = Findings(self.name, clock=clock)
        self._acknowledge = acknowledge
        self._own: str | None = None
        self._answered = False
        self._pending: tuple[str, ...] = ()
        self.keys = (Key(look=self.events),)

    def close(self) -> None:
        """Hang up."""
        self._server.close()

    def events(self) -> Sequence[Notice]:
        """What is scheduled for this machine now."""
        answer = self._server.get(EVENTS, seconds=None if self._answered else self._first_seconds)
        if answer.status == 410:
            raise NoAnswer("it is being updated (HTTP 410)", patience_seconds=UPDATE_SECONDS)
        if answer.status != 200:
            raise refusal(answer)
        events = _events(answer)
        self._answered = True
        found = [(event, self._notice(event, answer)) for event in events]
        self._pending = tuple(
            str(event.get("EventId"))
            for event, notice in found
            if notice is not None and notice.kind == "reclaim"
        )
        return [notice for _, notice in found if notice is not None]

    def handled(self) -> None:
        """All is durable: what stands announced may begin. From another thread than the loop's."""
        if not self._acknowledge or not self._pending:
            return
        body = json.dumps({"StartRequests": [{"EventId": known} for known in self._pending]}).encode()
        server = Metadata(self._url, headers=HEADERS)
        try:
            answer = server.ask("POST", EVENTS, body=body, headers={"Content-Type": "application/json"})
        finally:
            server.close()
        if answer.status != 200:
            raise refusal(answer)

    def _notice(self, event: Mapping[str, object], answer: Answer) -> Notice | None:
        kind, known = event.get("EventType"), event.get("EventId")
        started = event.get("EventStatus") == "Started"
        resources = event.get("Resources")
        if not isinstance(kind, str) or not isinstance(known, str) or not isinstance(resources, list):
            return None
        grade = self._grade(kind, resources)
        if grade is None:
            return None
        begins = event.get("NotBefore")
        moment = mail_time(begins) if isinstance(begins, str) else None
        said = f"{kind}:{known}@{'started' if started else begins or 'soon'}"
        if grade == "hint":
            return self._findings.within("hint", said, seconds=None)
        if started:  # also how a failing host announces itself: no notice, it has begun
            return self._findings.within("reclaim", said, seconds=0.0)
        if moment is None:
            return self._findings.within("reclaim", said, seconds=EVENTS_THAT_END[kind])
        return self._findings.notice("reclaim", said, moment=moment, answer=answer)

    def _grade(self, kind: str, resources: Sequence[object]) -> Kind | None:
        """How grave it is for this machine; None if it is not meant."""
        names = {str(name).lower() for name in resources}
        own = self._own_name()
        if own is not None and own not in names:
            return None
        ends = kind in EVENTS_THAT_END
        if own is None and len(names) > 1:
            return "hint"  # it may be another machine of the set
        return "reclaim" if ends else "hint"

    def _own_name(self) -> str | None:
        if self._own is None:
            try:
                answer = self._server.get(NAME)
            except NoAnswer:
                return None
            text = answer.text
            if answer.status == 200 and text and len(text) <= 256 and "<" not in text:
                self._own = text.lower()
        return self._own


def _events(answer: Answer) -> Sequence[Mapping[str, object]]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise NoAnswer("what it says is not JSON") from None
    events = document.get("Events") if isinstance(document, Mapping) else None
    if events is None and isinstance(document, Mapping) and "DocumentIncarnation" in document:
        return []
    if not isinstance(events, list):
        raise NoAnswer("what it says holds no list of events")
    return [event for event in events if isinstance(event, Mapping)]
