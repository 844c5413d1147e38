"""How often a command that crashes is started again: a crash loop must end, a long run may go on."""


class Restarts:
    """``limit`` crashes in a row, without a checkpoint in between, are answered by a restart."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.crashes = 0
        self._saved_step: int | None = None

    def again(self, saved_step: int | None) -> bool:
        """It crashed. Whether to start it once more."""
        if saved_step != self._saved_step:
            self.crashes = 0  # it got somewhere
        self._saved_step = saved_step
        self.crashes += 1
        return self.crashes <= self.limit
