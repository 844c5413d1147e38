"""How an image is cut into chunks, so that tensors that stayed equal give chunks that are equal."""

from collections.abc import Iterator
from typing import Final

from blake3 import blake3

from outlive.store.table import TensorTable

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""No chunk is longer: one PUT, no multipart, and small enough to be sent again alone."""


def digest(content: "bytes | memoryview") -> str:
    """The BLAKE3 of the content, in hex; read in place, without holding the interpreter's lock."""
    return blake3(content).hexdigest()


def cut(table: TensorTable, *, chunk_bytes: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Offset and length of every chunk of the table's image, in order, by the three rules of the format.

    Together they cover the image, the gaps between the tensors included. ``chunk_bytes`` is for tests.
    """
    pieces: list[tuple[int, int]] = []
    for start, end in _spans(table, chunk_bytes=chunk_bytes):
        pieces += [(at, min(chunk_bytes, end - at)) for at in range(start, end, chunk_bytes)]
    return pieces


def _spans(table: TensorTable, *, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Where chunks must begin: at a large tensor, after one, at a new group, where a pack is full.

    A stretch runs up to the next one; only that of a large tensor is longer than ``chunk_bytes``.
    """
    start, group, large = 0, None, False
    for extent in table.extents():
        is_large = extent.bytes >= chunk_bytes
        fits = extent.offset + extent.bytes - start <= chunk_bytes
        if extent.offset > start and (is_large or large or extent.group != group or not fits):
            yield start, extent.offset
            start = extent.offset
        group, large = extent.group, is_large
    if table.bytes > start:
        yield start, table.bytes
