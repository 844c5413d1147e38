"""AWS EC2: IMDSv2's spot and maintenance keys.

The two-minute notice is ``spot/instance-action``; ``spot/termination-time`` is its older form. A rebalance
recommendation is a risk, no date.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from outlive_agent.notice import Notice
from outlive_agent.sources.findings import Findings
from outlive_agent.sources.metadata_http import SECONDS, Answer, Metadata, NoAnswer, refusal
from outlive_agent.sources.polling import Key
from outlive_agent.sources.session_token import Token
from outlive_agent.sources.times import iso_time, mail_time, seconds_until

URL = "http://169.254.169.254"
TOKEN = {"ask": "X-aws-ec2-metadata-token-ttl-seconds", "use": "X-aws-ec2-metadata-token"}
NEAR_SECONDS = 15 * 60.0
"""Maintenance that begins within that is no hint any more."""
SCALING_SECONDS = 90.0
"""The grace that AWS's own handler advises for terminations that are no interruptions."""
_META = "/latest/meta-data"
_HOP_HINT = "in a container, the instance's metadata hop limit must be 2 or more"


class Aws:
    """Reads what EC2 announces to this instance."""

    name = "aws"
    period = 5.0
    longest_wait = 10.0

    def __init__(
        self, url: str = URL, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = Metadata(url, seconds=seconds)
        self._token = Token(self._server, ask=TOKEN["ask"], use=TOKEN["use"], clock=clock, hint=_HOP_HINT)
        self._findings = Findings(self.name, clock=clock)
        self.keys = (
            Key(look=self.interruption),
            Key(look=self.rebalance, every=3),
            Key(look=self.maintenance, every=12),
            Key(look=self.scaling, every=3),
        )

    def close(self) -> None:
        """Hang up."""
        self._server.close()

    def interruption(self) -> Sequence[Notice]:
        """The spot instance will be terminated, stopped or hibernated."""
        answer = self._get("/spot/instance-action")
        if answer is None:
            return self._termination_time()
        said = _mapping(answer)
        action, text = said.get("action"), said.get("time")
        if not isinstance(action, str):
            raise NoAnswer("spot/instance-action names no action")
        moment = iso_time(text) if isinstance(text, str) else None
        if action == "hibernate":  # it begins at once: the notice comes, the two minutes don't
            moment = None
        elif moment is None and action not in {"terminate", "stop"}:
            raise NoAnswer("spot/instance-action names an unknown action and no time")
        found = self._findings.notice("reclaim", f"{action}@{text}", moment=moment, answer=answer)
        return [found] if found else []

    def _termination_time(self) -> Sequence[Notice]:
        answer = self._get("/spot/termination-time")
        moment = iso_time(answer.text) if answer is not None else None
        if answer is None or moment is None:  # documented: "a value that is not a time" means nothing
            return []
        found = self._findings.notice("reclaim", f"terminate@{answer.text}", moment=moment, answer=answer)
        return [found] if found else []

    def rebalance(self) -> Sequence[Notice]:
        """The instance is more likely than others to be interrupted."""
        answer = self._get("/events/recommendations/rebalance")
        if answer is None:
            return []
        text = _mapping(answer).get("noticeTime")
        return [self._findings.within("hint", f"rebalance@{text}", seconds=None)]

    def maintenance(self) -> Sequence[Notice]:
        """Reboots, stops and retirements that are scheduled: a hint while they are far away."""
        answer = self._get("/events/maintenance/scheduled")
        if answer is None or not answer.text:
            return []
        events = _json(answer)
        found = [self._event(event, answer) for event in (events if isinstance(events, list) else [events])]
        return [notice for notice in found if notice is not None]

    def _event(self, event: object, answer: Answer) -> Notice | None:
        if not isinstance(event, Mapping) or event.get("State", "active") != "active":
            return None
        moment = mail_time(str(event.get("NotBefore")))
        if moment is None:
            return None
        near = seconds_until(moment, answer) <= NEAR_SECONDS
        said = f"{event.get('Code')}:{event.get('EventId')}@{event.get('NotBefore')}"
        if not near:
            return self._findings.notice("hint", f"{said}:early", moment=moment, answer=answer)
        return self._findings.notice("reclaim", said, moment=moment, answer=answer)

    def scaling(self) -> Sequence[Notice]:
        """The auto scaling group takes the instance out; it says nothing of when."""
        answer = self._get("/autoscaling/target-lifecycle-state")
        if answer is None or answer.text != "Terminated":
            return []
        return [self._findings.within("reclaim", "autoscaling:Terminated", seconds=SCALING_SECONDS)]

    def _get(self, key: str) -> Answer | None:
        """None where there is nothing."""
        answer = self._token.get(_META + key)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refusal(answer)
        return answer


def _json(answer: Answer) -> object:
    try:
        found: object = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise NoAnswer("what it says is not JSON") from None
    return found


def _mapping(answer: Answer) -> Mapping[str, object]:
    found = _json(answer)
    if not isinstance(found, Mapping):
        raise NoAnswer("what it says is not a JSON object")
    return found
