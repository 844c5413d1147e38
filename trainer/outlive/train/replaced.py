"""Tells of values that a script sets before its loop, over those that a checkpoint has just brought."""

import reprlib
from typing import Any

from outlive.train.values import Encoder, dump


def replaced_line(name: str, saved: Any, now: Any) -> str | None:
    """What to say if `now` hides another value that was saved; None if nothing is lost."""
    if saved is now or (not _holds_tensors(now) and _written(saved) == _written(now)):
        return None
    return (
        f"run.state.{name} was set to {reprlib.repr(now)} before the loop, so the saved "
        f"{reprlib.repr(saved)} is gone: give the start to attach({name}=...) instead"
    )


def _holds_tensors(value: Any) -> bool:
    encoder = Encoder()
    encoder.encode(value, at="")
    return bool(encoder.tensors)


def _written(value: Any) -> bytes:
    return dump(Encoder().encode(value, at=""))
