"""Signals that are one wish: whoever stops a group of processes often tells its leader once more."""

BURST_SECONDS = 0.5
"""Shorter than a person takes to decide to press Ctrl-C once more; ``timeout`` takes microseconds."""


class Bursts:
    """Tells what somebody says again from what is only heard twice, as the SIGTERM of GNU ``timeout``."""

    def __init__(self) -> None:
        self._number = 0
        self._until = 0.0

    def echo(self, number: int, now: float) -> bool:
        """Whether this is the last signal that counted, heard once more."""
        if number == self._number and now < self._until:
            return True
        self._number, self._until = number, now + BURST_SECONDS
        return False
