"""Alibaba Cloud, Tencent Cloud and BytePlus: one key that holds the time of the reclaim, if there is one."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone

from outlive_agent.notice import Notice
from outlive_agent.sources.findings import Findings
from outlive_agent.sources.metadata_http import SECONDS, Answer, Metadata, NoAnswer, refusal
from outlive_agent.sources.polling import Key
from outlive_agent.sources.session_token import Token
from outlive_agent.sources.times import iso_time, reversed_time

ALIBABA_URL = "http://100.100.100.200"
TENCENT_URL = "http://metadata.tencentyun.com"
BYTEPLUS_URL = "http://100.96.0.96"
SPOT = "/latest/meta-data/spot/termination-time"
_CHINA = timezone(timedelta(hours=8))


class TerminationTime:
    """404 or an empty answer means that nothing is announced; what is no time is no answer."""

    period = 5.0
    longest_wait = 10.0

    def __init__(
        self,
        name: str,
        *,
        ask: Callable[[], Answer],
        parse: Callable[[str], datetime | None],
        close: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._ask = ask
        self._parse = parse
        self._close = close
        self._findings = Findings(name, clock=clock)
        self.keys = (Key(look=self.look),)

    def close(self) -> None:
        """Hang up."""
        self._close()

    def look(self) -> Sequence[Notice]:
        """The time of the reclaim, if one is announced."""
        answer = self._ask()
        if answer.status == 404:
            return []
        if answer.status != 200:
            raise refusal(answer)
        text = answer.text
        if not text:
            return []
        moment = self._parse(text)
        if moment is None:
            raise NoAnswer("what it says is no time")
        found = self._findings.notice("reclaim", f"terminate@{text}", moment=moment, answer=answer)
        return [found] if found else []


def alibaba(
    url: str = ALIBABA_URL, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> TerminationTime:
    """With a token, which a hardened instance demands; without where there are none."""
    server = Metadata(url, seconds=seconds)
    token = Token(
        server,
        ask="X-aliyun-ecs-metadata-token-ttl-seconds",
        use="X-aliyun-ecs-metadata-token",
        optional=True,
        clock=clock,
    )
    path = "/latest/meta-data/instance/spot/termination-time"
    return TerminationTime(
        "alibaba", ask=lambda: token.get(path), parse=iso_time, close=server.close, clock=clock
    )


def tencent(
    url: str = TENCENT_URL, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> TerminationTime:
    """Its times name no zone; they are those of China."""
    server = Metadata(url, seconds=seconds)

    def parse(text: str) -> datetime | None:
        return iso_time(text, zone=_CHINA) or reversed_time(text, zone=_CHINA)

    return TerminationTime(
        "tencent", ask=lambda: server.get(SPOT), parse=parse, close=server.close, clock=clock
    )


def byteplus(
    url: str = BYTEPLUS_URL, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> TerminationTime:
    """BytePlus and Volcengine."""
    server = Metadata(url, seconds=seconds)
    path = "/latest/spot_instance_termination_time"
    return TerminationTime(
        "byteplus", ask=lambda: server.get(path), parse=iso_time, close=server.close, clock=clock
    )
