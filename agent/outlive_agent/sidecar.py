"""The agent of a bare ``python train.py``, which starts it (``outlive.programs``): ``--fd N -- COMMAND``."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from outlive.errors import ConfigError, OutliveError
from outlive.staging.channel import Channel
from outlive.staging.messages import Refused
from outlive.store.lives import Life
from outlive_agent.exits import Exit
from outlive_agent.shortage import shortage


def main(argv: Sequence[str] | None = None) -> int:
    """Guard the trainer at the other end of ``--fd``, and live on until its last snapshot is a checkpoint."""
    parser = argparse.ArgumentParser(prog="outlive_agent.sidecar")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    if os.getsid(0) != os.getpid():
        os.setsid()  # a Ctrl-C in the terminal is for the trainer, which asks us for a last save
    channel = Channel.from_fd(options.fd)
    os.set_inheritable(options.fd, False)
    from outlive_agent.cli.starting import guard_parent

    try:
        return guard_parent(channel, command=tuple(options.command), taken_over=_taken_over(dict(os.environ)))
    except OutliveError as error:
        _refuse(channel, error)
        return Exit.CONFIG if isinstance(error, ConfigError) else Exit.FAILED
    except (MemoryError, OSError, RuntimeError) as error:
        short = shortage(error)
        if short is None:
            raise
        _refuse(channel, short)
        return Exit.FAILED


def _refuse(channel: Channel, error: OutliveError) -> None:
    with suppress(EOFError, TimeoutError):
        channel.send(Refused(message=str(error), hint=error.hint), timeout=5.0)
    channel.close()


def _taken_over(environ: dict[str, str]) -> Life | None:
    life, nonce = environ.get("OUTLIVE_LIFE", ""), environ.get("OUTLIVE_NONCE", "")
    if not life.isdecimal() or not nonce:
        return None
    return Life(run=environ.get("OUTLIVE_RUN", ""), number=int(life), nonce=nonce)


if __name__ == "__main__":
    sys.exit(main())
