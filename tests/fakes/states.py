"""A state as an agent holds it, whose it is, and its tensor table."""

import json

from outlive.staging.arena import Arena, Notes
from outlive.staging.control import ControlPage
from outlive.store.lives import Life
from outlive_agent.held import Held
from outlive_agent.left import Owner

OWNER = Owner(store="s3://bucket/runs", run="t", boot="this one")
LIFE = Life(run="t", number=3, nonce="ab")
TABLE = json.dumps(
    {
        "format": "outlive/table",
        "version": 1,
        "bytes": 8,
        "tensors": [
            {
                "path": "count",
                "dtype": "int64",
                "shape": [1],
                "offset": 0,
                "bytes": 8,
                "device": "cpu",
                "group": 0,
            }
        ],
    }
).encode()


def held_state(*, step: int = 20, number: int = 2, life: int = 3, page: "ControlPage | None" = None) -> Held:
    arena = Arena.create(8)
    arena.view[:] = step.to_bytes(8, "little")
    if page is not None:
        page.begin(1, number)
    return Held(
        arena=arena,
        notes=Notes(TABLE, b"{}"),
        page=page,
        life=life,
        step=step,
        epoch=1,
        bytes=8,
        number=number,
        slot=1,
        reason="notice",
        metrics={"loss": 0.5},
        environment={"torch": "2.13"},
        copy_seconds=0.25,
        stop=True,
    )
