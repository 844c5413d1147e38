"""The newest state, kept with systemd until it is not needed any more: it survives agent and trainer both."""

import os
from collections.abc import Mapping

from outlive.errors import ProtocolError
from outlive.store.lives import Life
from outlive_agent.fdstore import FdStore
from outlive_agent.held import Held
from outlive_agent.journal import Journal
from outlive_agent.left import Left, Owner, descriptors, find


class KeptMemory:
    """Only the deciding thread uses it. Losing it costs no more than there being none."""

    def __init__(self, store: FdStore, owner: Owner, *, journal: Journal) -> None:
        self._store = store
        self._owner = owner
        self._journal = journal
        self._life: Life | None = None
        self._complained = False
        self.left: Left | None = None
        """What an agent before this one left, and nobody has looked at in the light of the bucket."""

    @property
    def empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._store.names

    def take_up(self, fds: Mapping[str, int], *, life: Life | None) -> Life | None:
        """See what systemd kept for us. Returns the life to go on with: this one, else that of a snapshot."""
        left, reasons = find(fds, self._owner)
        if left is not None and life is None and left.held.life == left.life.number:
            life = left.life
        if left is not None and left.life != life:
            reasons.append(f"step {left.held.step:,} is of life {left.life.number}, which has ended")
            left = None
        for fd in fds.values():
            os.close(fd)
        self.left = left
        if left is None:
            for reason in reasons:
                self._journal.warning(f"what an agent before this one left in memory is no use: {reason}")
        return life

    def belongs_to(self, life: Life) -> None:
        """The life is ours: what is kept from now on serves it."""
        self._life = life

    def keep(self, held: Held | None) -> None:
        """From now on this is the newest state; None: there is none that anyone would need."""
        try:
            self._keep(held)
        except (OSError, ProtocolError) as error:
            if not self._complained:
                self._complained = True
                what = "systemd can't keep snapshots for an agent that replaces this one"
                self._journal.warning(f"{what}: {error}")

    def _keep(self, held: Held | None) -> None:
        if held is None:
            self._store.hold({})
        if held is None or self._life is None:
            return
        files = descriptors(held, life=self._life, owner=self._owner)
        try:
            self._store.hold(files)
        finally:
            os.close([*files.values()][-1])
