"""Arenas, notes and the control page: shared, sealed, and checked before they are trusted."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.errors import ProtocolError
from outlive.staging import arena as arena_module
from outlive.staging.arena import Arena, notes_to_fd, read_notes
from outlive.staging.control import LAYOUT, PAGE_BYTES, W_LAYOUT, ControlPage
from outlive.staging.messages import REASONS


@pytest.fixture
def page() -> Iterator[ControlPage]:
    """A new control page."""
    page = ControlPage.create()
    yield page
    page.close()


def _open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_both_sides_see_the_same_bytes() -> None:
    """What one side writes into an arena the other one reads."""
    with Arena.create(100) as ours, Arena.attach(os.dup(ours.fd), 100, writable=False) as theirs:
        ours.view[:5] = b"hello"
        assert bytes(theirs.view[:5]) == b"hello"
        assert theirs.view.readonly
        assert len(theirs.view) == 100


def test_an_arena_can_be_empty() -> None:
    """A state without tensors has an image of no bytes."""
    with Arena.create(0) as ours, Arena.attach(os.dup(ours.fd), 0) as theirs:
        assert len(theirs.view) == 0


def test_sealed_against_shrinking() -> None:
    """Nobody can cut an arena short under its reader's feet."""
    with Arena.create(100) as arena:
        for size in (0, 50, 200):
            with pytest.raises(PermissionError):
                os.ftruncate(arena.fd, size)


@pytest.mark.parametrize("size", [101, 1 << 40])
def test_smaller_than_announced(size: int) -> None:
    """An arena that is smaller than announced is refused, and its descriptor closed."""
    with Arena.create(100) as arena:
        before = _open_fds()
        with pytest.raises(ProtocolError):
            Arena.attach(os.dup(arena.fd), size)
        assert _open_fds() == before


def test_unsealed_memory_is_refused() -> None:
    """Memory whose maker may still cut it short is refused, and so is what is no memory at all."""
    unsealed = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, PAGE_BYTES)
    half = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(half, PAGE_BYTES)
    fcntl.fcntl(half, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    for fd in (unsealed, half, os.open("/dev/null", os.O_RDWR), os.open("/proc/self/exe", os.O_RDONLY)):
        again = os.dup(fd)
        with pytest.raises(ProtocolError):
            Arena.attach(fd, 10)
        with pytest.raises(ProtocolError):
            ControlPage.attach(again)


def test_an_arena_nobody_holds_gives_its_memory_back() -> None:
    """Dropping the last reference closes the descriptor, which alone would keep the memory."""
    before = _open_fds()
    arena = Arena.create(1000)
    assert _open_fds() == before + 2  # ours, and the mapping's
    del arena
    assert _open_fds() == before


def test_a_slice_keeps_the_mapping() -> None:
    """Closing an arena does not pull memory from under someone who still reads it."""
    arena = Arena.create(10)
    arena.view[:2] = b"ab"
    held = arena.view[:2]
    arena.close()
    assert bytes(held) == b"ab"
    held.release()


def test_notes_round_trip() -> None:
    """Table and values come back as they were."""
    fd = notes_to_fd(b"table", b"values!")
    assert read_notes(fd, 5, 7) == (b"table", b"values!")
    os.close(fd)


@pytest.mark.parametrize(("table", "values"), [(5, 6), (5, 8), (-5, 17), (0, 0), (1 << 40, 1)])
def test_notes_of_another_length(table: int, values: int) -> None:
    """Notes that are not as long as announced are refused."""
    fd = notes_to_fd(b"table", b"values!")
    with pytest.raises(ProtocolError):
        read_notes(fd, table, values)
    os.close(fd)


def test_notes_that_are_no_file() -> None:
    """A pipe in the place of notes is refused instead of waited for."""
    reading, writing = os.pipe()
    with pytest.raises(ProtocolError):
        read_notes(reading, 1, 1)
    os.close(reading)
    os.close(writing)


def test_notes_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can make the agent read more than two documents' worth."""
    monkeypatch.setattr(arena_module, "MAX_NOTES_BYTES", 10)
    fd = notes_to_fd(b"table", b"values!")
    with pytest.raises(ProtocolError):
        read_notes(fd, 5, 7)
    os.close(fd)


def test_requests(page: ControlPage) -> None:
    """A request is seen whole by the other side, and a newer one replaces it."""
    other = ControlPage.attach(os.dup(page.fd))
    assert other.request is None
    for serial, reason in enumerate(REASONS, start=1):
        assert page.ask(reason, stop=serial % 2 == 0, deadline_ns=serial * 10) == serial
        request = other.request
        assert request is not None
        assert (request.serial, request.reason, request.deadline_ns) == (serial, reason, serial * 10)
        assert request.stop == (serial % 2 == 0)
    other.close()


def test_words_are_where_the_protocol_says(page: ControlPage) -> None:
    """Every property writes the word that docs/PROTOCOL.md gives it, and reads it back."""
    page.every_steps = 50
    page.committed_step = 0
    page.free(1, 9)
    page.boundary(7, now_ns=123, epoch=0, step_ns=55)
    page.copy_ns = 66
    page.honoured = 2
    page.begin(0, 4)
    page.begin(1, 5)
    words = {0: LAYOUT, 5: 50, 6: 1, 9: 9, 16: 7, 17: 123, 18: 1, 19: 55, 20: 66, 21: 2, 22: 4, 23: 5}
    assert {i: word for i, word in enumerate(page.words) if word} == words
    assert (page.committed_step, page.freed(1), page.epoch, page.step_ns) == (0, 9, 0, 55)
    assert (page.step, page.boundary_ns, page.copy_ns, page.honoured) == (7, 123, 66, 2)
    assert (page.begun(0), page.begun(1), page.every_steps) == (4, 5, 50)


def test_nothing_written_yet(page: ControlPage) -> None:
    """Step 0 and epoch 0 are told from "none yet"."""
    assert (page.committed_step, page.epoch) == (None, None)
    page.boundary(1, now_ns=1, epoch=None, step_ns=1)
    assert page.epoch is None


def test_another_layout_is_refused(page: ControlPage) -> None:
    """A page of another version is refused with what to do."""
    page.words[W_LAYOUT] = LAYOUT + 1
    with pytest.raises(ProtocolError) as caught:
        ControlPage.attach(os.dup(page.fd))
    assert "same version" in caught.value.hint
