"""The test matrix of providers: the real loop against a real server, in every state and with every fault."""

import threading
from collections.abc import Callable

import pytest

from fakes.watched import SERVERS, Watched
from outlive_agent.emulate.faults import NAMES, parse_fault
from outlive_agent.sources import gcp

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
