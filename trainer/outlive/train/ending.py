"""How a run is left: finished, stopped on purpose, or by an exception."""

from dataclasses import dataclass

from outlive.errors import StateError
from outlive.staging.messages import Outcome
from outlive.train.boundary import Stand, Want
from outlive.train.requests import Requests
from outlive.train.saving import Saving, say

_TRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Where the loop stood when it was left."""

    saving: Saving
    requests: Requests
    stand: Stand
    whole: bool
    """Whether the state is still that of the last boundary."""
    alone: bool = True
    """Whether this is the only rank: what one of several reached in vain is nothing that all could save."""

    def leave(self, error: BaseException | None) -> Outcome:
        """Save what can be saved without a lie, and say how it ended."""
        if self.requests.leaving:
            return "stopped"
        self.saving.land()  # first, as only then it is known whether the last step's copy is of any use
        if error is None:
            self._finish()
            return "finished"
        self._rescue(error)
        return "exception"

    def _finish(self) -> None:
        saving = self.saving
        # With several ranks the others' trouble, or an agent's death, may have spoilt a snapshot for all.
        for _ in range(1 if self.alone else _TRIES):
            self._save_end()
            if saving.secure(urgent=False):
                return
            saving.retract()
        say(f"the final state is not stored: {saving.failure()}")

    def _save_end(self) -> None:
        saving = self.saving
        if saving.link.lost:
            saving.succeed(at_once=True)
        try:
            if (
                self.stand.step != saving.step
                and saving.wait_free()
                and not self._save(Want(reason="finished"))
            ):
                say(f"the state after step {self.stand.step} could not be handed to an agent")
        except StateError as why:
            say(f"Error: the final state can't be saved:\n{why}")
            say(f"Try: {why.hint}")

    def _rescue(self, error: BaseException) -> None:
        saving = self.saving
        name = type(error).__name__
        if self.alone and self.whole and self.stand.step != saving.step and saving.link.refused is None:
            if saving.link.lost:
                saving.succeed(at_once=True)
            try:
                if self._save(Want(reason="exception", stop=True)) and saving.secure(urgent=True):
                    say(f"{name} while fetching data: step {self.stand.step}, the last whole one, is saved")
                    return
            except StateError as why:
                say(f"Error: the state can't be saved:\n{why}")
        if saving.step == self.stand.step and self.whole:
            say(f"{name}: step {self.stand.step} is saved")
        else:
            stands = f"the save of step {saving.step} stands" if saving.any else "nothing is saved yet"
            say(f"{name} on the way to step {self.stand.step + 1}: {stands}")

    def _save(self, want: Want) -> bool:
        return self.saving.save(want, self.stand)
