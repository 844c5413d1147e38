"""Checkpoints that no run under ``attach`` has saved: what they lack begins as the script has it."""

from typing import Any

from outlive.errors import StateError
from outlive.train.loops import VERSION


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """The state of a run, whoever saved it. ``StateError`` if that was torch.distributed.checkpoint.

    What ``outlive import`` wrote holds a module and the step: loops begin, no random generator is set, and
    which parameters are frozen and which modules evaluate is up to the script.
    """
    if "dcp" in saved:
        raise StateError(
            "this run was saved by torch.distributed.checkpoint, and attach() can't go on from it",
            hint="outlive export RUN model.safetensors, then outlive import model.safetensors NEW_RUN",
        )
    if not saved.get("imported"):
        return saved
    loops = {"version": VERSION, "scope": {"turns": [], "inner": []}, "sources": []}
    objects = {name: _module(tree) for name, tree in saved["objects"].items()}
    return {**saved, "objects": objects, "loops": loops, "rng": {}, "environment": {}}


def _module(tree: dict[str, Any]) -> dict[str, Any]:
    return {**tree, "frozen": None, "eval": None, "extra": {}, "hooked": {}}
