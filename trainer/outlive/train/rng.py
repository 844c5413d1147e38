"""Every random generator that a training step may draw from without being handed one."""

import random
from typing import Any

import numpy
import torch

from outlive.errors import Damaged
from outlive.train.generators import sound

_SEVERAL = ("cuda", "xpu")


def capture() -> dict[str, Any]:
    """The state of python's, numpy's and torch's global generators, on every device that is in use."""
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(legacy=False),
        "torch": _raw(torch.get_rng_state()),
    }
    for kind in _SEVERAL:
        devices = getattr(torch, kind, None)
        if devices is not None and devices.is_initialized():
            state[kind] = [_raw(devices.get_rng_state(i)) for i in range(devices.device_count())]
    if torch.backends.mps.is_available():
        state["mps"] = _raw(torch.mps.get_rng_state())
    return state


def restore(state: dict[str, Any]) -> list[str]:
    """Set them all again. Returns why the numbers drawn from here on may differ, one reason an item."""
    try:
        random.setstate(state["python"])
        bits = sound(state["numpy"])
        torch.set_rng_state(_tensor(state["torch"]))
    except (ValueError, TypeError, LookupError, RuntimeError) as why:
        raise Damaged(f"the random numbers' state in the checkpoint is none: {why}") from None
    reasons = []
    try:
        numpy.random.set_state(bits)
    except ValueError:
        reasons.append("numpy's global generator is of another kind than when this was saved")
    for kind in _SEVERAL:
        reasons += _restore_devices(kind, state.get(kind, []))
    if "mps" in state:
        if torch.backends.mps.is_available():
            torch.mps.set_rng_state(_tensor(state["mps"]))
        else:
            reasons.append("saved with the random state of an mps device, and there is none here")
    return reasons


def _restore_devices(kind: str, saved: list[bytes]) -> list[str]:
    devices = getattr(torch, kind, None)
    here = devices.device_count() if devices is not None and devices.is_available() else 0
    if devices is not None:
        for i, raw in enumerate(saved[:here]):
            devices.set_rng_state(_tensor(raw), i)
    if saved and len(saved) != here:
        return [f"saved with the random state of {len(saved)} {kind} device(s), here are {here}"]
    return []


def _raw(state: torch.Tensor) -> bytes:
    return bytes(state.cpu().numpy())


def _tensor(raw: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)
