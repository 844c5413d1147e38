"""A state in memory as a few descriptors, by which it outlives agent and trainer, and what they were."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from outlive.errors import ProtocolError
from outlive.staging import memory
from outlive.staging.arena import MAX_NOTES_BYTES, Arena, Notes
from outlive.staging.control import ARENAS, ControlPage
from outlive.staging.messages import MAX_PACKET_BYTES, SnapshotTaken, decode, encode
from outlive.store.lives import Life
from outlive_agent.held import Held

VERSION = 1
_RECORD = "state"
_HEADER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose states these are: nobody else may take them. ``boot``: memory lasts no longer."""

    store: str
    run: str
    boot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What an agent that died had in memory: a state, and the life that it served."""

    life: Life
    held: Held


class _Record(NamedTuple):
    life: Life
    of: int
    """The life that took the snapshot, or whose checkpoint was restored."""
    arena: str
    page: str
    packet: SnapshotTaken
    notes: Notes


def descriptors(held: Held, *, life: Life, owner: Owner) -> dict[str, int]:
    """The memory files that make up this state, by name; the last one is new, and the caller's to close.

    That one is the record, which names the others: without it they are nothing, so it goes last.
    """
    files = {_name("arena", held.arena.fd): held.arena.fd}
    header: dict[str, object] = {
        "version": VERSION,
        "boot": owner.boot,
        "store": owner.store,
        "run": owner.run,
        "life": life.number,
        "nonce": life.nonce,
        "of": held.life,
        "arena": _name("arena", held.arena.fd),
        "page": "",
    }
    if held.page is not None:
        header["page"] = _name("page", held.page.fd)
        files[_name("page", held.page.fd)] = held.page.fd
    lines = json.dumps(header).encode() + b"\n" + encode(_packet(held)) + b"\n"
    record = memory.create_final("outlive-state", lines, held.notes.table, held.notes.values)
    return {**files, _name(_RECORD, record): record}


def find(fds: Mapping[str, int], owner: Owner) -> tuple[Left | None, list[str]]:
    """The newest whole state among these descriptors, which stay open, and why others can't be used."""
    records: list[_Record] = []
    reasons: list[str] = []
    for name, fd in fds.items():
        if name.startswith(f"{_RECORD}-"):
            try:
                records.append(_read(fd, owner))
            except (ProtocolError, OSError) as error:
                reasons.append(str(error))
    for record in sorted(records, key=lambda record: (record.of, record.packet.step), reverse=True):
        try:
            return Left(life=record.life, held=_held(record, fds)), reasons
        except (ProtocolError, OSError) as error:
            reasons.append(f"step {record.packet.step:,} of life {record.of}: {error}")
    return None, reasons


def _packet(held: Held) -> SnapshotTaken:
    return SnapshotTaken(
        number=held.number,
        arena=held.slot,
        step=held.step,
        epoch=held.epoch,
        world=held.world,
        reason=held.reason,
        bytes=held.bytes,
        table=len(held.notes.table),
        values=len(held.notes.values),
        metrics=held.metrics,
        environment=held.environment,
        copy_seconds=held.copy_seconds,
        stop=held.stop,
    )


def _read(fd: int, owner: Owner) -> _Record:
    raw = memory.read_final(fd, at_most=_HEADER_BYTES + MAX_PACKET_BYTES + MAX_NOTES_BYTES)
    first, _, rest = raw.partition(b"\n")
    second, _, notes = rest.partition(b"\n")
    try:
        header = json.loads(first[:_HEADER_BYTES])
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a record is not JSON") from error
    packet = decode(second)
    if not isinstance(header, dict) or not isinstance(packet, SnapshotTaken) or packet.arena >= ARENAS:
        raise ProtocolError("a record is of another kind")
    if packet.table + packet.values != len(notes):
        raise ProtocolError("a record's notes are not as long as it says")
    where = f"step {packet.step:,}"
    numbers = [header.get(name) for name in ("life", "of")]
    texts = [header.get(name) for name in ("nonce", "arena", "page")]
    if header.get("version") != VERSION or not all(type(number) is int and number > 0 for number in numbers):
        raise ProtocolError(f"{where}: its record can't be understood")
    if not all(isinstance(text, str) for text in texts):
        raise ProtocolError(f"{where}: its record can't be understood")
    if not owner.boot or header.get("boot") != owner.boot:
        raise ProtocolError(f"{where} is from before this machine booted")
    if (header.get("store"), header.get("run")) != (owner.store, owner.run):
        raise ProtocolError(f"{where} is of another run, or for another store")
    return _Record(
        life=Life(run=owner.run, number=header["life"], nonce=header["nonce"]),
        of=header["of"],
        arena=header["arena"],
        page=header["page"],
        packet=packet,
        notes=Notes(notes[: packet.table], notes[packet.table :]),
    )


def _held(record: _Record, fds: Mapping[str, int]) -> Held:
    packet = record.packet
    page = ControlPage.attach(os.dup(_of(fds, record.page))) if record.page else None
    held = Held(
        arena=Arena.attach(os.dup(_of(fds, record.arena)), packet.bytes, writable=False),
        notes=record.notes,
        page=page,
        life=record.of,
        step=packet.step,
        epoch=packet.epoch,
        world=packet.world,
        bytes=packet.bytes,
        number=packet.number,
        slot=packet.arena,
        reason=packet.reason,
        metrics=packet.metrics,
        environment=packet.environment,
        copy_seconds=packet.copy_seconds,
        stop=packet.stop,
        source="memory",
    )
    if not held.intact:
        raise ProtocolError("a newer state was being copied over it")
    return held


def _of(fds: Mapping[str, int], name: str) -> int:
    if name not in fds:
        raise ProtocolError(f"its memory {name[:40]!r} is not there")
    return fds[name]


def _name(kind: str, fd: int) -> str:
    """One for each memory file, whichever descriptor leads to it."""
    return f"{kind}-{os.fstat(fd).st_ino}"
