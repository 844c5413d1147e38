"""The notes of several ranks in one: an index, then each rank's table and values (docs/RANKS.md)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outlive.errors import ProtocolError
from outlive.staging.arena import Notes

PAGE: Final = 4096
"""Every rank's image begins at a page of the joint one."""
MAX_WORLD: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNotes:
    """One rank's part of a joint image: where its image lies, its tensor table, its values."""

    rank: int
    offset: int
    bytes: int
    table: "Raw"
    values: "Raw"


Raw = bytes  # inside the class above, ``bytes`` is a number


def encode_parts(parts: Sequence[PartNotes]) -> Notes:
    """The index and the rest; the reverse of :func:`decode_parts`."""
    index = [[part.rank, part.offset, part.bytes, len(part.table), len(part.values)] for part in parts]
    rest = b"".join(piece for part in parts for piece in (part.table, part.values))
    return Notes(json.dumps(index, separators=(",", ":")).encode(), rest)


def parts_of(notes: Notes, *, world: int, image_bytes: int) -> tuple[PartNotes, ...]:
    """The parts of an image of so many ranks; of one rank the notes are its own, without an index."""
    if world > 1:
        parts = decode_parts(notes, image_bytes)
        if [part.rank for part in parts] != list(range(world)):
            raise ProtocolError(f"the image of {world} ranks has parts of {len(parts)}")
        return parts
    return (PartNotes(rank=0, offset=0, bytes=image_bytes, table=notes.table, values=notes.values),)


def decode_parts(notes: Notes, image_bytes: int) -> tuple[PartNotes, ...]:
    """Every part, by rank, which is the order of their images. ``ProtocolError`` for anything else."""
    try:
        index = json.loads(notes.table)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the index of the ranks' parts is not JSON") from error
    if not isinstance(index, list) or not 0 < len(index) <= MAX_WORLD:
        raise ProtocolError("the index of the ranks' parts is no list of them")
    parts: list[PartNotes] = []
    at = end = 0
    for line in index:
        if not isinstance(line, list) or len(line) != 5 or not all(_is_size(number) for number in line):
            raise ProtocolError("a line of the ranks' index is not five whole numbers")
        rank, offset, size, table, values = line
        if parts and rank <= parts[-1].rank:
            raise ProtocolError("the ranks' parts are not in order")
        if offset % PAGE or offset < end or offset + size > image_bytes:
            raise ProtocolError(f"the part of rank {rank} lies outside the image, or over another")
        if at + table + values > len(notes.values):
            raise ProtocolError(f"the notes of rank {rank} are not as long as the index says")
        parts.append(
            PartNotes(
                rank=rank,
                offset=offset,
                bytes=size,
                table=notes.values[at : at + table],
                values=notes.values[at + table : at + table + values],
            )
        )
        at, end = at + table + values, offset + size
    if at != len(notes.values):
        raise ProtocolError("the notes of the ranks are longer than the index says")
    return tuple(parts)


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 63
