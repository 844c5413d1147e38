"""One provider's source pointed at its emulator, driven look by look."""

import io
from collections.abc import Callable, Sequence

from outlive_agent.emulate.server import Emulator
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice, Withdrawn
from outlive_agent.sources import aws, azure, gcp, termination_time
from outlive_agent.sources.polling import Polling, Server

SHORT = 0.1
SERVERS: dict[str, Callable[[str], Server]] = {
    "aws": lambda url: aws.Aws(url, seconds=SHORT),
    "gcp": lambda url: gcp.Gcp(url, seconds=SHORT, hang_seconds=0),
    "azure": lambda url: azure.Azure(url, seconds=SHORT, first_seconds=SHORT),
    "alibaba": lambda url: termination_time.alibaba(url, seconds=SHORT),
    "tencent": lambda url: termination_time.tencent(url, seconds=SHORT),
    "byteplus": lambda url: termination_time.byteplus(url, seconds=SHORT),
}


class Watched:
    """One provider's source pointed at its emulator, driven look by look."""

    def __init__(self, provider: str, *, standing: Sequence[Notice] = ()) -> None:
        self.emulator = Emulator(provider)
        self.stage = self.emulator.stage
        self.said: list[Notice | Withdrawn] = []
        self.stream = io.StringIO()
        self.server = SERVERS[provider](self.emulator.url)
        self.polling = Polling(self.server, journal=Journal(self.stream), standing=standing)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.polling.look(self.said.append)

    @property
    def notices(self) -> list[Notice]:
        return [said for said in self.said if isinstance(said, Notice)]

    @property
    def withdrawn(self) -> list[Withdrawn]:
        return [said for said in self.said if isinstance(said, Withdrawn)]

    @property
    def journal(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def left(self) -> float | None:
        """Seconds to the deadline of the one notice."""
        (notice,) = self.notices
        return None if notice.deadline is None else notice.deadline - notice.received_at

    def close(self) -> None:
        self.server.close()
        self.emulator.close()
