"""A process that dies before or after one of its effects, and has none after that."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any, Literal, TypeVar

import pytest

from fakes.stores import Killed, Wrapped
from outlive.objects.interface import Body, ObjectStore

_T = TypeVar("_T")

When = Literal["before", "after"]


class Death:
    """Comes at the ``at``-th effect (from 0), before it or after it took place. ``effects``: all that did."""

    def __init__(self, at: int, when: When) -> None:
        self._at = at
        self._when = when
        self._lock = Lock()
        self._count = 0
        self.effects: list[str] = []

    @property
    def came(self) -> bool:
        return self._count > self._at

    def around(self, what: str, effect: Callable[[], _T]) -> _T:
        """Do it, or die."""
        with self._lock:  # one after the other, so that what came before is known
            number = self._count
            self._count += 1
            if number > self._at or (number == self._at and self._when == "before"):
                raise Killed
            done = effect()
            self.effects.append(what)
            if number == self._at:
                raise Killed
            return done


class CrashingStore(Wrapped):
    """Every put, and every single key of a deletion, is an effect: a batch may have been half done."""

    def __init__(self, store: ObjectStore, death: Death) -> None:
        super().__init__(store)
        self._death = death

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        self._death.around(f"put {key}", lambda: self.inner.put(key, body, create_only=create_only))

    def delete(self, keys: Sequence[str]) -> None:
        # From the end: no order within a batch is promised, and the other one is that of the calls.
        for key in reversed(keys):
            self._death.around(f"delete {key}", lambda key=key: self.inner.delete([key]))  # type: ignore[misc]


class _DyingFile:
    """A file whose every write happens in two halves, of which the second may not come."""

    def __init__(self, file: IO[Any], death: Death) -> None:
        self._file = file
        self._death = death

    def __enter__(self) -> "_DyingFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, data: "bytes | memoryview") -> int:
        whole = memoryview(data).cast("B")
        halves = (whole[: len(whole) // 2], whole[len(whole) // 2 :])
        return sum(self._death.around("write", lambda half=half: self._file.write(half)) for half in halves)  # type: ignore[misc]


@contextmanager
def crashing_disk(death: Death) -> Iterator[None]:
    """Everything that a store in a directory does to the disk is an effect, whichever store it is."""

    def dying(what: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            return death.around(f"{what} {arguments[0]}", lambda: real(*arguments, **options))

        return call

    with pytest.MonkeyPatch.context() as patch:
        opened = Path.open

        def opening(path: Path, mode: str = "r", **options: Any) -> "IO[Any] | _DyingFile":
            if mode.startswith("r"):
                return opened(path, mode, **options)
            return _DyingFile(death.around(f"open {path}", lambda: opened(path, mode, **options)), death)

        patch.setattr(Path, "open", opening)
        for name in ("mkdir", "hardlink_to", "replace", "unlink"):
            patch.setattr(Path, name, dying(name, getattr(Path, name)))
        patch.setattr(os, "fsync", dying("fsync", os.fsync))
        yield
