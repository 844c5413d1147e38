"""What the rig raises: it never skips, it says what is missing and what to do."""


class RigError(RuntimeError):
    """The rig can't do what a test asked; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)
        self.hint = hint


class TimedOut(RigError):
    """A condition did not come true in time. The message ends with the guest's last journal lines."""
