"""A state in memory as descriptors: what comes back, and what is refused."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from fakes.states import LIFE, OWNER, held_state
from outlive.staging import memory
from outlive.staging.arena import Arena
from outlive.staging.control import ControlPage
from outlive_agent.fdstore import inherited
from outlive_agent.left import Owner, descriptors, find


@pytest.fixture
def page() -> Iterator[ControlPage]:
    """Of the conversation in which the snapshot was taken."""
    page = ControlPage.create()
    yield page
    page.close()


def test_everything_comes_back(page: ControlPage) -> None:
    """The state, and all that was said of it, is the same for the next agent, in the same memory."""
    held = held_state(page=page)
    left, reasons = find(descriptors(held, life=LIFE, owner=OWNER), OWNER)
    assert left is not None
    assert (LIFE, []) == (left.life, reasons)
    again = left.held
    for name in ("notes", "life", "step", "epoch", "bytes", "number", "slot", "reason", "stop"):
        assert getattr(held, name) == getattr(again, name)
    assert (held.metrics, held.environment, 0.25) == (again.metrics, again.environment, again.copy_seconds)
    held.arena.view[:1] = b"x"
    assert b"x" == bytes(again.arena.view[:1])
    assert again.intact
    assert again.ours
    page.free(1, 2)
    assert not again.ours
    page.begin(1, 3)
    assert not again.intact


def test_newest_whole_one_is_found(page: ControlPage) -> None:
    """Of several states the newest that was not copied over is taken, whatever the order."""
    fds = {
        **descriptors(held_state(step=30, page=page), life=LIFE, owner=OWNER),
        **descriptors(held_state(step=10), life=LIFE, owner=OWNER),
        **descriptors(held_state(step=20), life=LIFE, owner=OWNER),
    }
    page.begin(1, 3)
    left, reasons = find(fds, OWNER)
    assert left is not None
    assert 20 == left.held.step
    assert ["step 30 of life 3: a newer state was being copied over it"] == reasons


def _rewritten(change: "Callable[[dict[str, Any]], object]") -> "Mapping[str, int]":
    files = descriptors(held_state(), life=LIFE, owner=OWNER)
    *others, record = files
    first, _, rest = memory.read_final(files[record], at_most=1 << 20).partition(b"\n")
    header = json.loads(first)
    change(header)
    changed = memory.create_final("x", json.dumps(header).encode() + b"\n" + rest)
    return {**{name: files[name] for name in others}, record: changed}


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(boot="an earlier one"),
        lambda header: header.update(run="u"),
        lambda header: header.update(store="s3://bucket/others"),
        lambda header: header.update(version=2),
        lambda header: header.update(life=-1),
        lambda header: header.update(life=True),
        lambda header: header.update(of="3"),
        lambda header: header.pop("nonce"),
        lambda header: header.update(arena="arena-1"),
        lambda header: header.update(arena=["x"]),
        lambda header: header.update(page="state-1"),
        lambda header: header.update(page=header["arena"]),
        lambda header: header.clear(),
    ],
)
def test_what_is_not_ours_is_refused(change: "Callable[[dict[str, Any]], object]") -> None:
    """A record of another boot, run or store, or one that makes no sense, is no state."""
    left, reasons = find(_rewritten(change), OWNER)
    assert left is None
    assert 1 == len(reasons)


def _record(content: bytes, *, final: bool = True) -> int:
    if final:
        return memory.create_final("x", content)
    fd = memory.create("x", len(content))
    os.pwrite(fd, content, 0)
    return fd


def test_hostile_descriptors_are_refused() -> None:
    """Records that can still be changed, are cut short, are no JSON, or no memory at all: each is refused."""
    files = descriptors(held_state(), life=LIFE, owner=OWNER)
    *others, record = files
    whole = memory.read_final(files[record], at_most=1 << 20)
    deep = b"[" * 100_000 + b"\n"
    bad = [_record(whole, final=False), _record(whole[:-1]), _record(b""), _record(b"\n\n"), _record(deep)]
    one, other = socket.socketpair()
    bad += [os.open("/dev/null", os.O_RDONLY), os.open("/", os.O_RDONLY), one.detach()]
    small = Arena.create(4)
    for fd in bad:
        left, reasons = find({**{name: files[name] for name in others}, record: fd}, OWNER)
        assert left is None
        assert 1 == len(reasons), fd
    left, _ = find({others[0]: small.fd, record: files[record]}, OWNER)
    assert left is None
    assert (None, []) == find({"arena-1": bad[0]}, OWNER)
    assert None is find(files, Owner(store=OWNER.store, run="t", boot=""))[0]
    other.close()
    for fd in bad:
        os.close(fd)


def test_descriptors_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the process that systemd meant takes them, and no program that it starts hears of them."""
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "X": "y"}
    assert {} == inherited(environ)
    assert {"X": "y"} == environ
    for count in ("", "-1", "x", "99999999999999999999"):
        assert {} == inherited({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})
