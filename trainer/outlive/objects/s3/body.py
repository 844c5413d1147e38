"""Memory as the body of a request, without a copy."""

import io

from outlive.objects.interface import Body


class MemoryBody:
    """What botocore and urllib3 ask of a file, over memory. ``read`` gives views of it, not copies.

    ``signed``: whether the signature covers the content. Over TLS it need not, which saves most of the work.
    """

    def __init__(self, body: Body, *, signed: bool) -> None:
        self._view = memoryview(body).cast("B")
        self._position = 0
        self.signed = signed

    def __len__(self) -> int:
        return len(self._view)

    def read(self, count: int | None = -1) -> memoryview:
        end = len(self._view) if count is None or count < 0 else self._position + count
        piece = self._view[self._position : end]
        self._position += len(piece)
        return piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._view)}[whence]
        self._position = max(0, min(len(self._view), start + offset))
        return self._position

    def tell(self) -> int:
        return self._position
