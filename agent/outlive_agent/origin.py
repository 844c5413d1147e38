"""Whether a run that nobody has named is the one its script began: two directories may have one name.

A name made of directory and script is the same for ``~/a/mnist/train.py`` and ``~/b/mnist/train.py``. The
claim of each life says where it was started, so the mistake is noticed before anything is claimed.
"""

import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import ConfigError, Damaged, NotFound
from outlive.objects.interface import ObjectStore
from outlive.store.lives import Claim, Identity, newest_life, read_claim
from outlive_agent.settings.naming import SCRIPTS, script_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What is trained: a script, or a program in a directory, and with which arguments."""

    what: str
    arguments: tuple[str, ...]


def check_origin(store: ObjectStore, run: str, *, identity: Identity) -> str | None:
    """Compare with the last life that was claimed. ``ConfigError`` if it was another script on this machine.

    On another machine paths may differ for good reasons, so there it is only said; so are other arguments.
    """
    last = _last(store, run)
    if last is None:
        return None
    theirs = origin_of(last.identity.command, last.identity.cwd)
    ours = origin_of(identity.command, identity.cwd)
    if theirs.what != ours.what:
        if last.identity.host == identity.host:
            raise ConfigError(
                f"run {run} is that of {theirs.what}, and this is {ours.what}",
                hint="give this one a name of its own: --run NAME, $OUTLIVE_RUN or attach(run=NAME); "
                f"named {run} by hand, it goes on with that one",
            )
        return f"life {last.life} of {run} was started as {theirs.what} on {last.identity.host}"
    if theirs.arguments != ours.arguments:
        before = " ".join(theirs.arguments) or "none"
        return f"life {last.life} was started with other arguments ({before}); a run of its own needs a name"
    return None


def origin_of(command: Sequence[str], cwd: str) -> Origin:
    """From a command line and the directory it was typed in."""
    at = script_at(command)
    if at is None:
        return Origin(what=cwd, arguments=tuple(command[1:]))
    script, rest = command[at], tuple(command[at + 1 :])
    if not script.endswith(SCRIPTS):  # a module: as if its file had been named
        script = f"{script.replace('.', '/')}.py"
    return Origin(what=os.path.normpath(Path(cwd) / script), arguments=rest)


def _last(store: ObjectStore, run: str) -> Claim | None:
    number = newest_life(store, run)
    try:
        return read_claim(store, run, number) if number else None
    except (Damaged, NotFound):  # who it was is only for this question
        return None
