"""The probe, where it can't do what it must."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlive.objects.memory import MemoryStore
from outlive.objects.probe import probe


@pytest.mark.parametrize("fewer", [1, 4, 7])
def test_writers_that_can_not_all_be_had_do_not_wait_for_one_another(
    monkeypatch: pytest.MonkeyPatch, fewer: int
) -> None:
    """The machine has no more threads, or the process is ending: an error at once, and nobody is left."""
    submit, asked = ThreadPoolExecutor.submit, iter(range(100))

    def rarely(pool: ThreadPoolExecutor, *arguments: object) -> object:
        if next(asked) == fewer:
            raise RuntimeError("can't start new thread")
        return submit(pool, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", rarely)
    errors: list[Exception] = []

    def run() -> None:
        try:
            probe(MemoryStore())
        except RuntimeError as error:
            errors.append(error)

    probing = threading.Thread(target=run, daemon=True)
    probing.start()
    probing.join(60)
    assert not probing.is_alive()
    assert len(errors) == 1
