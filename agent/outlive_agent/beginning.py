"""How a life begins: wait for a predecessor that still saves, claim, then fetch what to resume from."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from outlive.errors import Cancelled, ConfigError, Damaged, Denied, NoBucket, OutliveError, Unavailable
from outlive.staging.arena import Arena, Notes
from outlive.staging.parts import PartNotes, encode_parts
from outlive.store import layout
from outlive.store.fetch import Restored, offsets, restore_newest
from outlive.store.layout import CheckpointId
from outlive.store.lives import Identity, Life, adopt, claim, hold, read_adoption
from outlive.store.manifest import Manifest
from outlive.store.newest import checkpoints, listed, newest_first, read_manifest
from outlive.store.sealing import check_seal
from outlive_agent.events import BeginFailed, LifeClaimed, Post, StateReady
from outlive_agent.held import Held
from outlive_agent.job import Job, Place
from outlive_agent.journal import step_text
from outlive_agent.origin import check_origin
from outlive_agent.probing import learn
from outlive_agent.shortage import shortage

_T = TypeVar("_T")

FIRST_PATIENCE_SECONDS, LONGEST_PATIENCE_SECONDS = 2.0, 60.0


class Beginning:
    """Runs in a thread of its own and posts ``LifeClaimed`` and ``StateReady``, or ``BeginFailed``."""

    def __init__(self, job: Job, place: Place, *, post: Post, identity: Identity) -> None:
        self._job = job
        self._run = job.run
        self._store = place.store
        self._lock = place.lock
        self._journal = place.journal
        self._post = post
        self._identity = identity
        self._left = place.memory.left if place.memory is not None else None
        self._closing = threading.Event()

    def start(self) -> None:
        """Claim and fetch, in the background."""
        self._thread(self._begin)

    def fetch_again(self) -> None:
        """The trainer crashed and no state is left in memory: fetch the newest once more."""
        self._thread(lambda: self._patiently(self._fetch))

    def close(self) -> None:
        """Give up what is still waiting."""
        self._closing.set()

    def _thread(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except Cancelled:
                return  # the life ends before it began; nobody waits for its state
            except OutliveError as error:
                self._post(BeginFailed(error=error))
            except (MemoryError, OSError, RuntimeError) as error:  # the arena, or a thread, is not to be had
                short = shortage(error)
                if short is None and self._closing.is_set():
                    return  # the process ends, and starts no more threads; nobody waits for its state
                if short is None:
                    raise
                self._post(BeginFailed(error=short))

        threading.Thread(target=run, name="beginning", daemon=True).start()

    def _begin(self) -> None:
        if self._job.taken_over is not None:
            self._take_over(self._job.taken_over)
            return
        waited = self._lock.wait(
            say=lambda: self._journal.info("an earlier agent still saves this run; waiting for it"),
            stopped=self._closing.is_set,
        )
        if not waited and not self._closing.is_set():
            self._journal.warning("the earlier agent still saves after a minute; going on without it")
        # A stranger's claim would stop the one who has the key, and then read nothing.
        self._patiently(lambda: check_seal(self._store, self._run))
        self._patiently(self._learn)
        if not self._job.named:
            self._patiently(self._check_origin)
        if self._job.rewind is not None:
            self._patiently(self._check_rewind)
        life = self._patiently(lambda: claim(self._store, self._run, identity=self._identity))
        self._post(LifeClaimed(life=life))
        self._patiently(lambda: self._choose(life))

    def _learn(self) -> None:
        learn(self._store, self._job.place, environ=os.environ, journal=self._journal)

    def _check_origin(self) -> None:
        line = check_origin(self._store, self._run, identity=self._identity)
        if line is not None:
            self._journal.notice(line)

    def _check_rewind(self) -> None:
        """Before a life is claimed for it; what is chosen is looked for again afterwards."""
        if self._job.rewind is not None:
            self._target(layout.MAX_LIFE + 1, self._job.rewind, checkpoints(self._store, self._run))

    def _take_over(self, life: Life) -> None:
        self._lock.hold()
        self._post(LifeClaimed(life=life))
        self._patiently(lambda: self._find_parent(life))

    def _find_parent(self, life: Life) -> None:
        self._learn()
        last = next((c for c in newest_first(self._store, self._run) if c.life <= life.number), None)
        own = last if last is not None and last.life == life.number else None
        parent = own
        if parent is None:
            adoption = read_adoption(self._store, self._run, life.number)
            parent = adoption.checkpoint if adoption is not None else None
        manifest = None
        if parent is not None:
            try:
                manifest = read_manifest(self._store, self._run, parent)
            except Damaged as error:  # then nothing is known to be there, and everything is sent
                self._journal.problem(f"the manifest of {step_text(parent.step)} can't be used", error)
        held = self._left_for(life, own, parent)
        self._left = None
        self._post(StateReady(held=held, parent=manifest, seconds=0.0, left=held is not None))

    def _left_for(self, life: Life, own: CheckpointId | None, parent: CheckpointId | None) -> Held | None:
        """What an agent before this one left in memory, unless the store has something newer."""
        if self._left is None:
            return None
        held = self._left.held
        what = CheckpointId(held.life, held.step)
        if what == parent:
            return held
        if held.life != life.number or (own is not None and held.step < own.step):
            self._journal.info(f"{step_text(held.step)} lies in memory, and is older than what is saved")
            return None
        hold(self._store, life)  # before its bytes are sent in vain
        return held

    def _choose(self, life: Life) -> None:
        """Fetch what this life resumes from, and record what that was before anyone trains."""
        if self._job.rewind is not None:
            self._go_back(life, self._job.rewind)
        manifest = self._fetch()
        if self._job.rewind is None:
            adopt(self._store, life, manifest.id if manifest is not None else None)

    def _go_back(self, life: Life, step: int) -> None:
        before = checkpoints(self._store, self._run)
        target = self._target(life.number, step, before)
        # Written first: from then on the order of preference begins where the rewind leads.
        adopt(self._store, life, target, rewind=True)
        still = checkpoints(self._store, self._run)
        left = [found for found in before if found not in still]
        if left:
            where = "to the beginning" if target is None else f"to {step_text(step)} of life {target.life}"
            count = "1 checkpoint is" if len(left) == 1 else f"{len(left):,} checkpoints are"
            self._journal.notice(
                f"going back {where}: {count} left behind, the newest of {step_text(left[0].step)} "
                f"(kept for a day at least; to come back: --rewind {left[0].step})"
            )

    def _target(self, below: int, step: int, known: Sequence[CheckpointId]) -> CheckpointId | None:
        """What is meant: of those in use the newest of that step, else of those that a rewind left behind."""
        if step == 0:
            return None
        left = sorted(set(listed(self._store, self._run)).difference(known), reverse=True)
        found = [each for each in (*known, *left) if each.life < below]
        for each in found:
            if each.step == step:
                return each
        steps = ", ".join(f"{each.step:,}" for each in found[:5]) or "none"
        raise ConfigError(
            f"run {self._run} has no checkpoint of step {step:,} to go back to",
            hint=f"see what there is with: outlive ls {self._run} (the newest: {steps})",
        )

    def _fetch(self) -> Manifest | None:
        began = time.monotonic()
        arenas: list[Arena] = []

        def allocate(size: int) -> memoryview:
            arenas.clear()  # that of a checkpoint which was passed over
            arenas.append(Arena.create(size))
            return arenas[0].view

        restored = restore_newest(
            self._store,
            self._run,
            allocate,
            on_damaged=self._passed_over,
            cancelled=self._closing.is_set,
        )
        seconds = time.monotonic() - began
        if restored is None:
            self._post(StateReady(held=None, parent=None, seconds=seconds))
            return None
        held = _held(restored, arenas[0], source=self._store.location)
        self._post(StateReady(held=held, parent=restored.manifest, seconds=seconds))
        return restored.manifest

    def _passed_over(self, checkpoint: CheckpointId, error: OutliveError) -> None:
        what = f"{step_text(checkpoint.step)} of life {checkpoint.life} is passed over"
        self._journal.problem(what, error)

    @property
    def _passing(self) -> tuple[type[OutliveError], ...]:
        """What is waited out. While memory holds what nobody has saved, all that somebody can put right."""
        return (Unavailable,) if self._left is None else (Unavailable, Denied, NoBucket)

    def _patiently(self, work: Callable[[], _T]) -> _T:
        """Where the job is patient, go on asking a store that can't be reached, and say so once."""
        delay, said = FIRST_PATIENCE_SECONDS, False
        while True:
            try:
                return work()
            except self._passing as error:
                if not self._job.patient or self._closing.is_set():
                    raise
                if not said:
                    self._journal.problem("waiting for the store", error)
                said = True
            self._closing.wait(delay)
            delay = min(2 * delay, LONGEST_PATIENCE_SECONDS)


def _held(restored: Restored, arena: Arena, *, source: str) -> Held:
    manifest = restored.manifest
    return Held(
        arena=arena,
        notes=_notes(restored),
        life=manifest.life,
        step=manifest.step,
        epoch=manifest.epoch,
        world=len(manifest.parts),
        bytes=offsets(manifest)[-1],
        source=source,
    )


def _notes(restored: Restored) -> Notes:
    if len(restored.notes) == 1:
        return Notes(restored.notes[0].table, restored.notes[0].values)
    return encode_parts(
        [
            PartNotes(
                rank=part.rank, offset=notes.offset, bytes=part.bytes, table=notes.table, values=notes.values
            )
            for part, notes in zip(restored.manifest.parts, restored.notes, strict=True)
        ]
    )
