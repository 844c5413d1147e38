"""The verbs at a sealed store without its key: each says that it is sealed, and which variable to set."""

from pathlib import Path

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive.objects.sealed import Encryption, Sealed
from outlive.store import layout
from outlive_agent.exits import Exit

KEY = "0f" * 32


@pytest.fixture
def sealed(store: ObjectStore) -> ObjectStore:
    """A run of one life and one checkpoint, encrypted with ``KEY``."""
    found = Sealed(store, Encryption(bytes.fromhex(KEY)))
    begin(found).commit(snapshot(300, b"x" * 100))
    return found


@pytest.mark.parametrize(
    "verb",
    [
        ("ls",),
        ("ls", "--json"),
        ("ls", "gpt"),
        ("history", "gpt"),
        ("history", "gpt", "--json"),
        ("reclaim", "gpt", "--in", "10s"),
    ],
)
def test_refused(
    cli: Cli, sealed: ObjectStore, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    """Without the key, and with another, nothing is made up and nothing is asked; with it all is as usual."""
    for key, said in (("", "no key is given"), ("f0" * 32, "with another key")):
        monkeypatch.setenv("OUTLIVE_ENCRYPTION_KEY", key)
        answer = cli(*verb)
        assert answer.code == Exit.CONFIG, answer
        assert said in answer.err
        assert "set OUTLIVE_ENCRYPTION_KEY" in answer.err
        assert "nothing yet" not in answer.out
    assert not list(sealed.list(layout.inboxes("gpt")))
    monkeypatch.setenv("OUTLIVE_ENCRYPTION_KEY", KEY)
    assert cli(*verb).code == Exit.FINISHED


def test_others_are_listed(cli: Cli, sealed: ObjectStore, store: ObjectStore, place: Path) -> None:
    """One sealed run beside others keeps nobody from those: they are listed, then the sealed one is told."""
    begin(store, "open").commit(snapshot(7, b"y" * 100))
    answer = cli("ls")
    assert answer.code == Exit.CONFIG
    assert "open" in answer.out
    assert f"1 run in {place / 'store'}" in answer.out
    assert "run gpt in" in answer.err
