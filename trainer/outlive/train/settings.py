"""What ``attach`` was asked for besides objects, checked before anything starts."""

import os
import re
from dataclasses import dataclass

from outlive.errors import ConfigError
from outlive.staging.messages import Welcome
from outlive.store.layout import check_run_name

_WAYS = {"": True, "hidden": True, "at-boundary": False}
_EVERY = re.compile(r"auto|[0-9.]+ *[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The script's own settings. None leaves a thing to the agent."""

    run: str | None
    store: str | None
    every: int | str | None
    hide: bool = True
    """Whether the copy may go on beside the training (docs/SAVING.md)."""

    @property
    def every_steps(self) -> int | None:
        return self.every if isinstance(self.every, int) else None

    def environment(self) -> dict[str, str]:
        """The same for a sidecar, which is configured as `outlive exec` is."""
        every = f"{self.every} steps" if isinstance(self.every, int) else self.every
        given = {"OUTLIVE_RUN": self.run, "OUTLIVE_STORE": self.store, "OUTLIVE_EVERY": every}
        return {name: value for name, value in given.items() if value is not None}

    def overruled(self, welcome: Welcome) -> list[str]:
        """What the agent decided otherwise, in words. ``ConfigError`` where that would mix up two runs."""
        if self.run is not None and self.run != welcome.run:
            raise ConfigError(
                f"this script says run={self.run!r}, and its agent runs it as {welcome.run!r}",
                hint="give the name in one of the two places only",
            )
        if welcome.mode == "sidecar":
            return []
        lines = []
        if self.store is not None and self.store != welcome.store:
            lines.append(f"store={self.store!r} is not used: the agent keeps this run in {welcome.store}")
        if isinstance(self.every, str):
            lines.append(f"every={self.every!r} is not used: the agent decides how often to save")
        return lines


def check(*, run: str | None, store: str | None, every: int | str | None) -> Wishes:
    """``ConfigError`` with everything that is wrong."""
    problems = []
    if run is not None:
        try:
            check_run_name(run)
        except ConfigError as why:
            problems.append(str(why))
    if store is not None and not (isinstance(store, str) and store):
        problems.append(f"store={store!r} is neither a directory nor an address such as s3://bucket/prefix")
    steps = type(every) is int and every > 0
    if not (every is None or steps or (isinstance(every, str) and _EVERY.fullmatch(every))):
        problems.append(f"every={every!r} is neither a number of steps above 0 nor text such as '10m'")
    way = os.environ.get("OUTLIVE_COPY", "")
    if way not in _WAYS:
        problems.append(f"OUTLIVE_COPY={way} is neither hidden nor at-boundary")
    if problems:
        raise ConfigError("\n".join(problems), hint="see help(outlive.attach)")
    return Wishes(run=run, store=store, every=every, hide=_WAYS[way])
