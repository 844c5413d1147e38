"""The exit codes, of ``outlive exec``, ``outlive agent`` and of a trainer that was told to stop."""

from enum import IntEnum


class Exit(IntEnum):
    """Few, and each with one meaning."""

    FINISHED = 0
    """The run is finished, or the command line did what was asked."""
    FAILED = 1
    """The command failed, or what was asked for could not be done."""
    USAGE = 2
    """The command line itself is wrong."""
    SAVE_FAILED = 74
    """Stopped, but the last save did not become a checkpoint: resuming loses steps (EX_IOERR)."""
    RESUME = 75
    """Stopped and saved: start it again to go on (EX_TEMPFAIL)."""
    SUPERSEDED = 76
    """A newer life of the run exists; this one stopped and deleted nothing."""
    CONFIG = 78
    """A setting is wrong: trying again will not help (EX_CONFIG)."""
