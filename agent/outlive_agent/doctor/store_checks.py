"""All that is asked of the store, in the order in which one answer makes the next question worth asking."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, Final, TypeVar

from outlive.errors import Damaged, OutliveError, StoreError
from outlive_agent.doctor import bucket, rates
from outlive_agent.doctor.checkpoint import State, checkpoint, newest_state, unreadable
from outlive_agent.doctor.finding import Finding, failed, warning
from outlive_agent.doctor.opening import Opened
from outlive_agent.doctor.rates import Measuring, Rate
from outlive_agent.doctor.scratch import Scratch
from outlive_agent.doctor.together import Together, TooLate

T = TypeVar("T")
_ENDING_SECONDS: Final = 4.0
_SLICE_SECONDS: Final = 0.05
_CLEARING_SECONDS: Final = 6.0
_ORDER: Final = ("bucket", "clock", "writes", "create-only", "versions", "checkpoint", "upload", "download")


class StoreChecks:
    """``run`` once, and ``close`` whatever happens: nothing of what was tried stays in the store."""

    def __init__(self, opened: Opened, run: str, *, together: Together, measure: bool) -> None:
        self.state: State | None = None
        self.upload: Rate | None = None
        self._run = run
        self._measure = measure
        self._together = together
        self._opened = opened
        self._store = opened.store
        self._scratch = Scratch(opened.to_clear)
        self._found: dict[str, Finding] = {}
        self._begun: list[Future[Any]] = []

    @property
    def findings(self) -> Sequence[Finding]:
        return [self._found[check] for check in (*_ORDER, "clean-up") if check in self._found]

    @property
    def not_checked(self) -> Sequence[str]:
        wanted = _ORDER if self._measure else _ORDER[:-2]
        return [check for check in wanted if check not in self._found and check != "versions"]

    def run(self, given: State | None, *, make_above: bool) -> None:
        """Ask everything. ``given``: the state's size as the user says it, which wins over what is found."""
        self.state = given
        reached = self._ask("bucket", lambda: self._reach(make_above=make_above))
        if reached is None:
            return
        self._tell(bucket.reached(reached), bucket.clock(reached))
        writes = self._ask("writes", lambda: bucket.writes(self._store, self._scratch))
        if writes is not None:
            self._tell(writes)
        versions = self._begin("versions", lambda: bucket.versions(self._opened.bare))
        newest = self._begin("checkpoint", lambda: newest_state(self._store, self._run))
        if writes is not None and writes.level != "problem":
            found = self._ask("create-only", lambda: bucket.create_only(self._store, self._scratch))
            self._tell(*found or ())
        with suppress(OutliveError):  # what it would say is no condition
            self._tell(*self._together.result(versions))
        self._take_state(newest, given)
        if self._measure and writes is not None and writes.figures.get("deletes"):
            self._take_rates()

    def close(self) -> None:
        """Stop what is under way, and remove what was written."""
        self._opened.closing.set()
        self._end()
        bucket_found = self._found.get("bucket")
        if bucket_found is None or bucket_found.level != "ok":
            return  # nothing was written
        clearing = self._together.begin("clean-up", self._scratch.clear)
        try:
            left, reason = clearing.result(timeout=_CLEARING_SECONDS), ""
        except FutureTimeout:
            left, reason = (self._scratch.folder,), ": the store does not answer any more"
        except OutliveError as error:
            left, reason = (self._scratch.folder,), f": {error}"
        if left:
            seen = f"what was tried may still lie below {self._scratch.folder}{reason}"
            change = "remove it by hand, or run this again after an hour: then it removes what was left"
            self._tell(warning("clean-up", seen, change=change))

    def _end(self) -> None:
        """Cut off what is under way, again and again: a request that is connecting can't be cut yet.

        What went on writing would write again after all was removed.
        """
        until = time.monotonic() + _ENDING_SECONDS
        while (busy := [future for future in self._begun if not future.done()]) and time.monotonic() < until:
            self._opened.cut()
            wait(busy, timeout=_SLICE_SECONDS)

    def _take_rates(self) -> None:
        measuring = Measuring(self._store, self._scratch, self._opened.closing)
        try:
            self.upload = self._together.result(self._begin("upload", measuring.up))
        except TooLate:
            self._tell(rates.too_slow(measuring))
        except OutliveError as error:
            self._tell(failed("upload", error, location=self._store.location))
        else:
            self._tell(rates.upload(self.upload))
            down = self._ask("download", measuring.down)
            if down is not None:
                self._tell(rates.download(down))

    def _reach(self, *, make_above: bool) -> bucket.Reached:
        if make_above:
            self._scratch.make_above()
        return bucket.reach(self._store)

    def _take_state(self, newest: "Future[State | None]", given: State | None) -> None:
        try:
            found = self._together.result(newest)
        except Damaged as error:
            self._tell(unreadable(error))
            found = None
        except OutliveError as error:
            self._tell(failed("checkpoint", error, location=self._store.location))
            found = None
        else:
            self._tell(checkpoint(given or found, self._run))
        self.state = given or found

    def _ask(self, check: str, work: Callable[[], T]) -> T | None:
        """Do it and wait. None if it failed, which is a finding then."""
        try:
            return self._together.result(self._begin(check, work))
        except (StoreError, TooLate, Damaged) as error:
            self._tell(failed(check, error, location=self._store.location))
            return None

    def _begin(self, check: str, work: Callable[[], T]) -> "Future[T]":
        future = self._together.begin(check, work)
        self._begun.append(future)
        return future

    def _tell(self, *findings: Finding) -> None:
        for finding in findings:
            self._found[finding.check] = finding
