"""Who asked for a save, and what comes of it at a boundary."""

import time
from typing import NoReturn

from outlive.errors import StateError
from outlive.staging.control import NO_STEPS, W_EVERY_STEPS, W_SERIAL
from outlive.train.boundary import Stand, Want
from outlive.train.saving import Saving, say
from outlive.train.stop import EXIT_RESUME, EXIT_SAVE_FAILED, EXIT_SUPERSEDED, Signals

_PATIENCE_BOUNDARIES = 100
_ALONE_SECONDS, _ALONE_AGAIN_SECONDS = 10.0, 600.0
"""How long a daemon that systemd replaces may be away before it is said, and how often it is said again."""


class Requests:
    """The agent by the control page, signals, the interval and the script itself: all end in one want."""

    def __init__(self, saving: Saving, signals: Signals, *, every: int | None) -> None:
        self.by_hand = False
        self.leaving = False
        """The loop is being left on purpose, with everything saved that could be."""
        self._saving = saving
        self._signals = signals
        self._every = every
        self._want: Want | None = None
        self._serial = 0
        self._signal_seen = False
        self._half_done = 0
        self._said = ""
        self._alone_since = 0.0
        self._say_alone_at = 0.0

    def due(self, step: int | None) -> bool:
        """Whether there is anything to do at this boundary. `step` is None between two epochs.

        This is all that a step costs when there is not.
        """
        every = self.every()
        if every and step is not None and step % every == 0:
            self.ask(Want(reason="interval"))
        return self._want is not None or self.asked()

    def every(self) -> int:
        """The interval in steps; 0: there is none, or not now."""
        every = self._saving.link.page.words[W_EVERY_STEPS]
        if self._every is not None and every != NO_STEPS:
            return self._every
        return 0 if every == NO_STEPS else every

    def asked(self) -> bool:
        """Whether somebody has asked for something since the last boundary."""
        link = self._saving.link
        return (
            link.page.words[W_SERIAL] != self._serial
            or self._signals.received != 0
            or self._signals.save
            or self.by_hand
            or self._saving.again is not None
            or link.lost
            or link.refused is not None
        )

    def serve(self, stand: Stand, *, half_done: bool) -> None:
        """Do what is due. ``SystemExit`` if that was to stop."""
        self._collect()
        self._stay_attached(stand)
        want = self._want
        if want is None:
            return
        if self._waits(half_done):
            return
        if self._attempt(want, stand):
            self._want = None
            if want.stop:
                self._stop(want, stand)
        elif want.stop and self._saving.link.lost:
            self.serve(stand, half_done=False)

    def _waits(self, half_done: bool) -> bool:
        """Whether a save must wait for a whole boundary."""
        self._half_done = self._half_done + 1 if half_done else 0
        if self._half_done == _PATIENCE_BOUNDARIES:
            say(f"a save has waited {self._half_done} steps for the optimizer: gradients are not saved")
        return half_done

    def _attempt(self, want: Want, stand: Stand) -> bool:
        """Save now, if that is possible. Whether this want is over."""
        try:
            return self._saving.save(want, stand)
        except StateError as why:
            self._complain(why)
            if want.stop:
                self._leave(EXIT_SAVE_FAILED)
            self._saving.honour(want)
            return True

    def _collect(self) -> None:
        page = self._saving.link.page
        if self._saving.again is not None:
            again, self._saving.again = self._saving.again, None
            self.ask(again)
        if self.by_hand:
            self.by_hand = False
            self.ask(Want(reason="hand"))
        if page.words[W_SERIAL] != self._serial:
            request = page.request
            if request is not None:
                self._serial = request.serial
                self.ask(Want(reason=request.reason, stop=request.stop, serial=request.serial))
        if self._signals.received and not self._signal_seen:
            self._signal_seen = True
            self.ask(Want(reason="signal", stop=True))
        if self._signals.save:
            self._signals.save = False
            self.ask(Want(reason="signal"))

    @property
    def heard(self) -> int:
        """Serial of the newest request of the agent that this loop knows of."""
        return self._serial

    @property
    def stopping(self) -> bool:
        """Whether a stop is due, and waits for a boundary at which it can be done."""
        return self._want is not None and self._want.stop

    def ask(self, want: Want) -> None:
        """Do this at the next boundary at which it can be done."""
        self._want = want if self._want is None else self._want.joined(want)

    def _stay_attached(self, stand: Stand) -> None:
        """See to it that there is an agent, or stop where there can be none."""
        link = self._saving.link
        if link.refused is not None:
            say(f"Error: {link.refused.message}")
            self._leave(EXIT_SUPERSEDED)
        if not link.lost:
            self._alone_since = 0.0
            return
        stopping = self._want is not None and self._want.stop
        parent_died = link.welcome.mode == "exec"
        if parent_died:
            say("the agent is gone: saving once more with another one, then stopping")
        if self._saving.succeed(at_once=stopping or parent_died):
            self._serial = 0
            self.ask(Want(reason="signal", stop=True) if parent_died else Want(reason="interval"))
        elif self._saving.link.refused is not None:
            self._stay_attached(stand)
        elif stopping or parent_died:
            say(f"stopped after step {stand.step} without a last save, since its agent is gone")
            self._leave(EXIT_SAVE_FAILED)
        else:
            self._say_alone(time.monotonic())

    def _say_alone(self, now: float) -> None:
        if not self._alone_since:
            self._alone_since, self._say_alone_at = now, now + _ALONE_SECONDS
        elif now >= self._say_alone_at:
            self._say_alone_at = now + _ALONE_AGAIN_SECONDS
            say(
                f"nobody saves this training: its agent has been gone for {now - self._alone_since:.0f} s"
                " (journalctl -u outlive-agent says why); training goes on"
            )

    def _stop(self, want: Want, stand: Stand) -> NoReturn:
        safe = self._saving.secure(urgent=True)
        if not safe and self._saving.link.lost and self._saving.succeed(at_once=True):
            self._saving.save(want, stand)
            safe = self._saving.secure(urgent=True)
        if self._saving.link.refused is not None:
            say(f"Error: {self._saving.link.refused.message}")
            self._leave(EXIT_SUPERSEDED)
        if not safe:
            say(f"stopped after step {stand.step}, which is not saved: {self._saving.failure()}")
        self._leave(EXIT_RESUME if safe else EXIT_SAVE_FAILED)

    def _leave(self, code: int) -> NoReturn:
        self.leaving = True
        raise SystemExit(code)

    def _complain(self, why: StateError) -> None:
        if str(why) != self._said:
            self._said = str(why)
            say(f"Error: this state can't be saved, so the last checkpoint stands:\n{why}")
            say(f"Try: {why.hint}")
