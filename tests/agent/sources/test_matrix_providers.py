"""The test matrix of providers: what only one of them does."""

import io
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from fakes.agents import wait_until
from fakes.watched import Watched
from outlive_agent.emulate.faults import parse_fault
from outlive_agent.emulate.server import Emulator
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice, Withdrawn
from outlive_agent.sources import azure, digitalocean, gcp
from outlive_agent.sources.polling import Polling

Watch = Callable[..., Watched]


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
    asked = watched.emulator.requests
    wait_until(lambda: any("wait_for_change" in line for line in asked), what="the question hangs")
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
