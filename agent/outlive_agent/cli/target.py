"""What a person names on the command line: a run, or one of its checkpoints; and what they may have meant."""

import argparse
import difflib
import re
from dataclasses import dataclass

from outlive.errors import NotFound
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.newest import checkpoints, listed
from outlive.store.runs import runs

_TARGET = re.compile(r"(?P<run>[^@]+)(?:@(?:(?P<life>[0-9]{1,6})[-:])?(?P<step>[0-9]{1,12}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``gpt``, ``gpt@1200``, ``gpt@3-1200`` or ``gpt@3:1200``; without a step the newest checkpoint."""

    run: str
    life: int | None = None
    step: int | None = None

    def __str__(self) -> str:
        life = "" if self.life is None else f"{self.life}-"
        return self.run if self.step is None else f"{self.run}@{life}{self.step}"


def target(text: str) -> Target:
    """Reads ``RUN[@STEP]``, for argparse."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no checkpoint; write gpt, gpt@1200 or gpt@3-1200")
    life, step = match["life"], match["step"]
    return Target(
        run=run_name(match["run"]),
        life=int(life) if life is not None else None,
        step=int(step) if step is not None else None,
    )


def run_name(text: str) -> str:
    """Reads a run's name, for argparse."""
    if not layout.RUN_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"a run can't be called {text!r}; write up to 64 of A-Z a-z 0-9 . _ -"
        )
    return text


def find_checkpoint(store: ObjectStore, wanted: Target) -> CheckpointId:
    """The checkpoint that is meant. ``NotFound`` says which there are."""
    order = checkpoints(store, wanted.run)
    everything = [*order, *sorted(set(listed(store, wanted.run)) - set(order), reverse=True)]
    if not everything:
        check_run(store, wanted.run)
        raise NotFound(
            f"run {wanted.run} in {store.location} has no checkpoint yet",
            hint=f"outlive history {wanted.run} shows what it did so far",
        )
    if wanted.step is None:
        return everything[0]
    for found in everything:
        if found.step == wanted.step and wanted.life in {None, found.life}:
            return found
    near = sorted({found.step for found in everything}, key=lambda step: abs(step - (wanted.step or 0)))[:3]
    raise NotFound(
        f"run {wanted.run} in {store.location} has no checkpoint {str(wanted).partition('@')[2]}",
        hint=f"the nearest: {', '.join(f'{wanted.run}@{step}' for step in sorted(near))}",
    )


def check_run(store: ObjectStore, run: str) -> None:
    """``NotFound`` with the nearest names, if nothing of ``run`` is in the store."""
    if any(True for _ in store.list(layout.run_prefix(run))):
        return
    names = list(runs(store))
    near = difflib.get_close_matches(run, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "outlive ls shows the runs that are there"
    if not names:
        hint = (
            "there is nothing at all; name the store with --store, or begin: outlive exec -- python train.py"
        )
    raise NotFound(f"there is no run {run} in {store.location}", hint=hint)
