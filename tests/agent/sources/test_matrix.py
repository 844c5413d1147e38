"""The test matrix of providers: the real loop against a real server, in every state and with every fault."""

import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

import pytest

from outlive_agent.emulate.faults import NAMES, parse_fault
from outlive_agent.emulate.server import Emulator
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice, Withdrawn
from outlive_agent.sources import aws, azure, digitalocean, gcp, termination_time
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


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    """Starts what a test watches, and ends it."""
    started: list[Watched] = []

    def start(provider: str, *, standing: Sequence[Notice] = ()) -> Watched:
        started.append(Watched(provider, standing=standing))
        return started[-1]

    yield start
    for watched in started:
        watched.close()


Watch = Callable[..., Watched]
ALL = pytest.mark.parametrize("provider", SERVERS)


@ALL
def test_announced_once_called_off_and_announced_again(watch: Watch, provider: str) -> None:
    """A reclaim is told once, called off once it is gone for good, and told again if it comes back."""
    watched = watch(provider)
    watched.look(3)
    assert watched.said == []
    watched.stage.announce(120)
    watched.look(3)
    assert [notice.kind for notice in watched.notices] == ["reclaim"]
    watched.stage.cancel()
    watched.look(3)
    assert [gone.id for gone in watched.withdrawn] == [watched.notices[0].id]
    watched.stage.announce(120)
    watched.look(2)
    assert len(watched.notices) == 2
    assert watched.journal == []


@ALL
def test_time_that_is_left(watch: Watch, provider: str) -> None:
    """What is left is what the provider says, whatever this machine's clock or zone is."""
    watched = watch(provider)
    watched.stage.announce(120)
    watched.look()
    promised = gcp.NOTICE_SECONDS if provider == "gcp" else 120
    assert watched.left() == pytest.approx(promised, abs=2)


@ALL
def test_announced_before_the_start(watch: Watch, provider: str) -> None:
    """A reclaim that was announced before the agent started is heard at the first look."""
    watched = watch(provider)
    watched.stage.announce(60)
    watched.look()
    assert len(watched.notices) == 1


@ALL
@pytest.mark.parametrize("fault", [*NAMES, "400", "401", "403", "410", "429", "500", "503"])
def test_fault(watch: Watch, provider: str, fault: str) -> None:
    """Whatever the server does for however long: no notice is made up, no loop ends, a line each way."""
    watched = watch(provider)
    watched.look()
    watched.emulator.faults = [parse_fault(fault)]
    watched.look(5)
    assert watched.said == []
    quiet = fault == "empty" and provider in {
        "alibaba",
        "tencent",
        "byteplus",
    }  # documented: nothing announced
    patient = fault == "410" and provider == "azure"  # documented: for 70 s it is being updated
    assert len(watched.journal) == (0 if quiet or patient else 1), watched.journal
    watched.emulator.faults = []
    watched.stage.announce(120)
    watched.look(2)
    assert len(watched.notices) == 1
    assert len(watched.journal) == (0 if quiet or patient else 2), watched.journal


@ALL
@pytest.mark.parametrize("fault", ["503", "reset", "garbage", "401"])
def test_announced_and_then_unknown(watch: Watch, provider: str, fault: str) -> None:
    """A server that fails after its announcement calls nothing off: don't know is not no."""
    watched = watch(provider)
    watched.stage.announce(120)
    watched.look()
    watched.emulator.faults = [parse_fault(fault)]
    watched.look(6)
    assert (len(watched.notices), watched.withdrawn) == (1, [])


@ALL
def test_one_failure_is_everyday_life(watch: Watch, provider: str) -> None:
    """A single failed answer is no line in the journal, and the notice comes at the next look."""
    watched = watch(provider)
    for _ in range(4):
        watched.emulator.faults = [parse_fault("503-once")]
        watched.look(2)
    watched.emulator.faults = [parse_fault("reset-once")]
    watched.stage.announce(60)
    watched.look(2)
    assert (len(watched.notices), watched.journal) == (1, [])


@ALL
def test_server_is_gone(watch: Watch, provider: str) -> None:
    """A refused connection is an illness like every other."""
    watched = watch(provider)
    watched.look()
    watched.emulator.close()
    watched.look(4)
    assert len(watched.journal) == 1
    assert "refused" in watched.journal[0]


@ALL
def test_known_to_an_earlier_agent(watch: Watch, provider: str) -> None:
    """What an earlier agent was told is not told again, and is called off if it stands no more."""
    first = watch(provider)
    first.stage.announce(120)
    first.look()
    again = watch(provider, standing=first.notices)
    again.stage.deadline = first.stage.deadline
    again.look(3)
    assert again.said == []
    again.stage.cancel()
    again.look(2)
    assert [gone.id for gone in again.withdrawn] == [first.notices[0].id]


@ALL
def test_loop_ends_with_the_life(watch: Watch, provider: str) -> None:
    """The loop tells what comes, and ends when the life does."""
    watched = watch(provider)
    watched.stage.announce(120)
    told, closing = threading.Event(), threading.Event()
    thread = threading.Thread(target=watched.polling.run, args=(lambda said: told.set(), closing))
    thread.start()
    assert told.wait(10)
    closing.set()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("provider", ["aws", "alibaba"])
def test_token_is_renewed(watch: Watch, provider: str) -> None:
    """A 401 is answered with a new token within the same look."""
    watched = watch(provider)
    watched.look()
    watched.emulator.faults = [parse_fault("401-once")]
    watched.stage.announce(60)
    watched.look()
    assert len(watched.notices) == 1
    assert watched.emulator.requests.count("PUT /latest/api/token") == 2


@pytest.mark.parametrize("fault", ["token-hang", "token-503", "token-400", "token-reset", "token-empty"])
def test_no_token(watch: Watch, fault: str) -> None:
    """Where no token can be had the line says so, and what a container needs."""
    watched = watch("aws")
    watched.emulator.faults = [parse_fault(fault)]
    watched.look(4)
    (line,) = watched.journal
    assert "no session token" in line
    assert "token-" not in line
    watched.emulator.faults = []
    watched.stage.announce(60)
    watched.look()
    assert len(watched.notices) == 1


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (b'{"action": "hibernate", "time": "2099-01-01T00:00:00Z"}', None),
        (b'{"action": "terminate", "time": "soon"}', None),
        (b'{"action": "terminate"}', None),
    ],
)
def test_aws_without_a_time(watch: Watch, said: bytes, left: float | None) -> None:
    """A hibernation begins at once, and so does what names no time that can be read."""
    watched = watch("aws")
    watched.stage.say(said)
    watched.look()
    assert watched.left() is left


@pytest.mark.parametrize(
    "said", [b"", b"null", b"[]", b'"terminate"', b'{"time": "2099-01-01T00:00:00Z"}', b'{"action": "dance"}']
)
def test_aws_nonsense(watch: Watch, said: bytes) -> None:
    """Valid HTTP with nonsense in it is an illness, never a notice."""
    watched = watch("aws")
    watched.stage.say(said)
    watched.look(4)
    assert (watched.said, len(watched.journal)) == ([], 1)


def test_aws_failed_to_terminate(watch: Watch) -> None:
    """A time that passed long ago did not come true: this machine is still here, and trains on."""
    watched = watch("aws")
    watched.stage.announce(-3600)
    watched.look(2)
    assert watched.said == []


@pytest.mark.parametrize(("kind", "grade"), [("rebalance", "hint"), ("maintenance", "hint")])
def test_aws_hints(watch: Watch, kind: str, grade: str) -> None:
    """A risk, or maintenance that is far away, asks for an early save and for no more."""
    watched = watch("aws")
    watched.stage.kind = kind
    watched.stage.announce(3600)
    watched.look(13)
    assert [notice.kind for notice in watched.notices] == [grade]


def test_aws_maintenance_comes_near(watch: Watch) -> None:
    """Maintenance becomes a reclaim when it is near, in place of the hint."""
    watched = watch("aws")
    watched.stage.kind = "maintenance"
    watched.stage.announce(3600)
    watched.look()
    watched.stage.announce(600)
    watched.look(26)
    assert [notice.kind for notice in watched.notices] == ["hint", "reclaim"]
    assert [gone.by for gone in watched.withdrawn] == [watched.notices[1].id]


@pytest.mark.parametrize("said", [b"TRUE\n", b'"TRUE"', b"true"])
def test_gcp_spellings(watch: Watch, said: bytes) -> None:
    """TRUE is TRUE with a line break, with quotes and in small letters."""
    watched = watch("gcp")
    watched.stage.say(said)
    watched.look()
    assert len(watched.notices) == 1


def test_gcp_hears_it_while_it_waits(watch: Watch) -> None:
    """The question that hangs is answered the moment it changes."""
    watched = watch("gcp")
    server = gcp.Gcp(watched.emulator.url, hang_seconds=60)
    polling = Polling(server, journal=Journal(watched.stream))
    told, closing = threading.Event(), threading.Event()
    thread = threading.Thread(target=polling.run, args=(lambda said: told.set(), closing))
    thread.start()
    asked = threading.Event()
    while not any("wait_for_change" in line for line in watched.emulator.requests):
        assert not asked.wait(0.01)
    watched.stage.announce(30)
    assert told.wait(10)
    closing.set()
    watched.emulator.close()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("kind", "window", "grades"),
    [("migrate", 60, ["hint"]), ("maintenance", 7200, ["hint"]), ("terminate", 600, ["reclaim"])],
)
def test_gcp_maintenance(watch: Watch, kind: str, window: float, grades: list[str]) -> None:
    """A live migration is a hint; a stop for maintenance is a reclaim once its time is known and near."""
    watched = watch("gcp")
    watched.stage.kind = kind
    watched.stage.announce(window)
    watched.look(2)
    assert [notice.kind for notice in watched.notices] == grades


@pytest.mark.parametrize(
    ("kind", "grades"),
    [
        ("Preempt", ["reclaim"]),
        ("Terminate", ["reclaim"]),
        ("Redeploy", ["reclaim"]),
        ("Reboot", ["reclaim"]),
        ("Freeze", ["hint"]),
        ("other", []),
    ],
)
def test_azure_events(watch: Watch, kind: str, grades: list[str]) -> None:
    """Events that end this machine are reclaims, a freeze is a hint, another machine's are not ours."""
    watched = watch("azure")
    watched.stage.kind = kind
    watched.stage.announce(30)
    watched.look(2)
    assert [notice.kind for notice in watched.notices] == grades


def test_azure_starts_early(watch: Watch) -> None:
    """An event that starts before its time leaves no time, and takes the place of the earlier word."""
    watched = watch("azure")
    watched.stage.announce(600)
    watched.look()
    watched.stage.start()
    watched.look(2)
    first, second = watched.notices
    assert second.deadline == second.received_at
    assert watched.withdrawn == [Withdrawn(source="azure", id=first.id, by=second.id)]


def _azure(**event: object) -> bytes:
    base = {"EventId": "E", "EventStatus": "Scheduled", "EventType": "Preempt", "Resources": ["VMSS_VM1"]}
    return json.dumps({"DocumentIncarnation": 7, "Events": [{**base, "NotBefore": None, **event}]}).encode()


def test_azure_names_differ_in_case_and_members_may_be_null(watch: Watch) -> None:
    """Case does not matter, and an event without a time has its type's shortest notice."""
    watched = watch("azure")
    watched.stage.say(_azure())
    watched.look()
    assert watched.left() == pytest.approx(30)


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (b'{"DocumentIncarnation": 1, "Events": null}', 0),
        (_azure(EventType=None), 0),
        (_azure(Resources=None), 0),
        (_azure(EventId=7), 0),
        (b'{"Events": {}}', 1),
        (b"[]", 1),
    ],
)
def test_azure_nonsense(watch: Watch, said: bytes, lines: int) -> None:
    """Members that are missing or null make no notice."""
    watched = watch("azure")
    watched.stage.say(said)
    watched.look(4)
    assert (watched.said, len(watched.journal)) == ([], lines)


def test_azure_is_approved_only_where_configured() -> None:
    """The event is approved when told that all is durable, if that is configured, and not before."""
    for acknowledge in (False, True):
        with Emulator("azure") as emulator:
            emulator.stage.announce(30)
            server = azure.Azure(emulator.url, acknowledge=acknowledge)
            server.events()
            assert emulator.stage.approved == []
            server.handled()
            assert len(emulator.stage.approved) == acknowledge
            server.close()


@pytest.mark.parametrize(
    ("provider", "pattern"),
    [("tencent", "%Y-%m-%d %H:%M:%S"), ("tencent", "%d/%m/%Y %H:%M:%S")],
)
def test_tencent_speaks_chinas_time(watch: Watch, provider: str, pattern: str) -> None:
    """A time without a zone is that of China, in both of its spellings."""
    watched = watch(provider)
    moment = datetime.now(timezone(timedelta(hours=8))) + timedelta(seconds=90)
    watched.stage.say(moment.strftime(pattern).encode())
    watched.look()
    assert watched.left() == pytest.approx(90, abs=2)


def test_digitalocean_api() -> None:
    """A Droplet that the API no longer has is being destroyed; one it never had is a wrong token."""
    with Emulator("digitalocean") as emulator:
        stream, said = io.StringIO(), list[Notice | Withdrawn]()
        server = digitalocean.DigitalOcean(emulator.url, token="t", api_url=emulator.url)  # noqa: S106
        polling = Polling(server, journal=Journal(stream))
        polling.look(said.append)
        assert said == []
        emulator.stage.end()
        polling.look(said.append)
        assert [(one.kind, one.deadline) for one in said if isinstance(one, Notice)] == [("reclaim", None)]
        server.close()
