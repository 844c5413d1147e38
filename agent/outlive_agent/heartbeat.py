"""How far the training is, told to the history from time to time: a machine that vanishes says no more."""

from outlive_agent.conversation import Conversation
from outlive_agent.history import History

EVERY_SECONDS = 180.0
"""One small object each time, which takes the place of the one before."""


class Heartbeat:
    """Only the deciding thread uses it. Times are seconds on CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._next = 0.0
        self._told = -1

    def observe(self, talk: Conversation | None, history: History, now: float) -> None:
        """Write it down if it is time, and if the training has moved since."""
        if talk is None or talk.gone or not talk.page.boundary_ns or now < self._next:
            return
        first, self._next = not self._next, now + EVERY_SECONDS
        step = talk.page.step
        if first or step == self._told:
            return
        self._told = step
        seconds = round(talk.page.step_ns / 1e9, 6)
        history.reached(step=step, step_seconds=seconds, every_seconds=EVERY_SECONDS)
