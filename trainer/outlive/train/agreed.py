"""Requests of one rank among several: what somebody wants becomes a wish, and is done once agreed."""

import os
from typing import NoReturn

from outlive.train.boundary import Stand, Want
from outlive.train.council import Agreed, Council
from outlive.train.requests import Requests
from outlive.train.saving import Saving, say
from outlive.train.stop import EXIT_RESUME, EXIT_SAVE_FAILED, EXIT_SUPERSEDED, Signals
from outlive.train.tracked import Tracked

PERMIT_SECONDS = 3.0
"""How long the first rank's permit may come after the verdict."""


class AgreedRequests(Requests):
    """As :class:`Requests`, of a rank that may only save what all ranks save."""

    def __init__(
        self,
        saving: Saving,
        signals: Signals,
        *,
        every: int | None,
        council: Council,
        first: bool,
        tracked: Tracked,
    ) -> None:
        super().__init__(saving, signals, every=every)
        self._council = council
        self._first = first
        self._tracked = tracked
        self._owed: Want | None = None

    def due(self, step: int | None) -> bool:
        """Whether there is anything to wish, or anything agreed to do, at this boundary."""
        council = self._council
        if step is not None:
            council.step = step
            if step >= council.target:
                return True
        return self.asked()

    def ask(self, want: Want) -> None:
        """Wish it."""
        self._owed = want if self._owed is None else self._owed.joined(want)
        self._council.wish(want)

    def serve(self, stand: Stand, *, half_done: bool) -> None:
        """Wish what somebody wants, and do what is agreed. ``SystemExit`` if that was to stop."""
        self._collect()
        self._stay_attached(stand)
        if self._council.over is not None and self._owed is not None and self._owed.stop:
            say(f"stopped after step {stand.step} without a last save: the ranks' store is gone")
            self._leave(EXIT_SAVE_FAILED)
        agreed = self._council.agreed
        if agreed is None or stand.step < agreed.step or self._waits(half_done):
            return
        try:
            if self._council.go(agreed):
                self._save(agreed, stand)
        finally:
            self._council.served()

    @property
    def stopping(self) -> bool:
        """Whether a stop is wished."""
        return self._owed is not None and self._owed.stop

    def _save(self, agreed: Agreed, stand: Stand) -> None:
        self._tracked.alike = agreed.alike
        owed = self._owed
        answers = owed is not None and (agreed.stop or not owed.stop)
        serial = owed.serial if owed is not None and answers else 0
        want = Want(reason=agreed.reason, stop=agreed.stop, serial=serial)
        if not self._saving.permitted(stop=agreed.stop, seconds=PERMIT_SECONDS):
            say(f"step {stand.step} is not saved: the first rank of this node gave no permit")
        elif self._attempt(want, stand) and answers:
            self._owed = None
        if want.stop:
            self._stop(want, stand)

    def _stop(self, want: Want, stand: Stand) -> NoReturn:
        # An earlier snapshot is secure, too, where none of this step came about.
        if self._saving.step == stand.step and self._saving.secure(urgent=True):
            self._leave(self._stopped_code())
        if self._saving.link.refused is not None:
            say(f"Error: {self._saving.link.refused.message}")
            self._leave(EXIT_SUPERSEDED)
        say(f"stopped after step {stand.step}, which is not saved: {self._saving.failure()}")
        self._leave(EXIT_SAVE_FAILED)

    def _stopped_code(self) -> int:
        """torchrun would start ranks again that end with anything but 0; their agent knows how they ended."""
        agent_knows = self._saving.link.welcome.mode != "sidecar"
        return 0 if agent_knows and "TORCHELASTIC_RUN_ID" in os.environ else EXIT_RESUME

    def _stay_attached(self, stand: Stand) -> None:
        if self._first or not (self._saving.link.lost or self._saving.link.refused):
            super()._stay_attached(stand)
            return
        if self._saving.link.refused is not None:
            super()._stay_attached(stand)
        say(f"stopped after step {stand.step}: the first rank of this node is gone")
        self._leave(EXIT_SAVE_FAILED)
