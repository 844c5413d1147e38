from hypothesis import given
from hypothesis import strategies as st

from outlive.store.chunks import CHUNK_BYTES, cut, digest
from outlive.store.table import TensorEntry, TensorTable


def table(sizes: list[tuple[int, int]], *, tail: int = 0) -> TensorTable:
    """Tensors of (bytes, group), packed at multiples of 64."""
    entries, offset = [], 0
    for number, (size, group) in enumerate(sizes):
        entry = TensorEntry(
            path=str(number),
            dtype="uint8",
            shape=(size,),
            offset=offset,
            bytes=size,
            device="cpu",
            group=group,
        )
        entries.append(entry)
        offset += (size + 63) // 64 * 64
    return TensorTable(bytes=offset + tail, tensors=tuple(entries))


sizes = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2)), max_size=30).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[1])
)


@given(sizes, st.integers(0, 3000))
def test_chunks_cover_the_image_and_are_never_too_long(pairs: list[tuple[int, int]], tail: int) -> None:
    """Every byte of the image is in exactly one chunk of at most the chunk size, gaps included."""
    image = table(pairs, tail=tail)
    at = 0
    for offset, size in cut(image, chunk_bytes=512):
        assert offset == at
        assert 0 < size <= 512
        at += size
    assert at == image.bytes


@given(sizes)
def test_chunks_begin_where_the_format_says(pairs: list[tuple[int, int]]) -> None:
    """Groups and large tensors begin a chunk; no chunk mixes a large tensor's tail with the next tensor."""
    image = table(pairs)
    starts = {offset for offset, _ in cut(image, chunk_bytes=512)}
    previous = None
    for extent in image.extents():
        if previous and (extent.group != previous.group or previous.bytes >= 512):
            assert extent.offset in starts
        if extent.bytes >= 512:
            assert {*range(extent.offset, extent.offset + extent.bytes, 512)} <= starts
        previous = extent


def test_small_tensors_share_a_chunk_until_it_is_full() -> None:
    """Two hundred thousand tiny tensors are not as many objects."""
    assert cut(table([(100, 0)] * 8), chunk_bytes=512) == [(0, 512), (512, 512)]


def test_a_change_in_one_tensor_moves_no_other_chunk() -> None:
    """A tensor that grows leaves the chunks of the groups and large tensors around it as they were."""
    before = cut(table([(600, 0), (100, 1), (700, 2)]), chunk_bytes=512)
    after = cut(table([(600, 0), (500, 1), (700, 2)]), chunk_bytes=512)
    assert [size for _, size in before][:2] == [size for _, size in after][:2]
    assert [size for _, size in before][-2:] == [size for _, size in after][-2:]


def test_a_tensor_of_one_chunk_has_its_own() -> None:
    """At exactly the chunk size a tensor counts as large."""
    pairs = [(64, 0), (CHUNK_BYTES, 0), (64, 0)]
    assert cut(table(pairs)) == [(0, 64), (64, CHUNK_BYTES), (64 + CHUNK_BYTES, 64)]


def test_an_empty_image_has_no_chunks() -> None:
    """A state without tensors can be saved."""
    assert cut(TensorTable(bytes=0, tensors=())) == []


def test_the_digest_is_blake3() -> None:
    """Anyone's BLAKE3 tool finds the same name."""
    assert digest(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest(memoryview(b"abc")) == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
