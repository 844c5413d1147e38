"""The whole examination: asks at once what can be, and ends with the sentence about the last save."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Final, TypeVar

from outlive.errors import OutliveError
from outlive_agent.config import DEFAULT_ORIGIN
from outlive_agent.doctor import fit, surroundings, window
from outlive_agent.doctor.finding import Finding, Report, failed
from outlive_agent.doctor.job_file import job_file
from outlive_agent.doctor.keys import keys
from outlive_agent.doctor.limits import disk, limits
from outlive_agent.doctor.memory import look_at_memory, memory, shared_memory
from outlive_agent.doctor.opening import Opened
from outlive_agent.doctor.place import place
from outlive_agent.doctor.software import software
from outlive_agent.doctor.store_checks import StoreChecks
from outlive_agent.doctor.subject import Subject, keys_source
from outlive_agent.doctor.surroundings import Around
from outlive_agent.doctor.together import Tell, Together
from outlive_agent.doctor.units_seen import UnitsSeen, units_seen
from outlive_agent.drain import stop_window
from outlive_agent.settings.credentials import credentials_for

T = TypeVar("T")
SECONDS: Final = 20.0
"""For everything that waits for a network."""


class Examination:
    """One look at one subject. ``environ`` is this process's."""

    def __init__(self, subject: Subject, environ: Mapping[str, str], *, seconds: float, tell: Tell) -> None:
        self._subject = subject
        self._environ = environ
        self._together = Together(seconds, tell)
        self._found: list[Finding] = []
        self._missed: list[str] = []

    def run(self) -> Report:
        """Everything. ``ConfigError`` before anything is asked if a setting can't be used."""
        subject = self._subject
        settings, source = subject.store, keys_source(subject.store)
        given = credentials_for(settings, self._environ)
        self._grace = stop_window(self._environ)
        opened = Opened(settings, self._environ)
        around = self._together.begin("provider", self._look_around)
        units = self._together.begin("unit-times", self._units_seen)
        found_keys = self._together.begin("keys", lambda: keys(given, self._environ, place=source))
        checks = self._ask_store(opened, make_above=settings.origin == DEFAULT_ORIGIN)
        if subject.job is not None:
            self._found.append(job_file(subject.job, self._environ, directory=subject.job_directory))
        self._found.append(place(settings))
        if "://" in settings.location:
            self._found += self._waited("keys", found_keys)
        self._found += checks.findings
        self._missed += checks.not_checked
        seen = next(iter(self._waited("unit-times", units)), None)
        if subject.machine:
            self._look_at_machine(checks, seen)
        for where in self._waited("provider", around):
            self._end(where, seen, checks)
        return Report(findings=self._found, not_checked=self._missed, seconds=self._together.spent)

    def _ask_store(self, opened: Opened, *, make_above: bool) -> StoreChecks:
        checks = StoreChecks(
            opened, self._subject.run, together=self._together, measure=self._subject.machine
        )
        with closing(checks):
            checks.run(self._subject.state, make_above=make_above)
        return checks

    def _look_around(self) -> Around:
        job = self._subject.job
        if job is None:
            return surroundings.look_around(self._subject.config.reclaim, self._environ)
        wanted = job.config.reclaim.provider
        return surroundings.named(job.provider if wanted in {"auto", "none"} else wanted)

    def _units_seen(self) -> UnitsSeen | None:
        return units_seen() if self._subject.machine else None

    def _look_at_machine(self, checks: StoreChecks, units: UnitsSeen | None) -> None:
        self._memory = look_at_memory()
        keep = self._subject.config.save.keep.last
        room = disk(self._subject.store.location, checks.state, keep=keep)
        self._found += [
            memory(self._memory, checks.state),
            shared_memory(),
            limits(checks.state),
            *([] if room is None else [room]),
            software(self._environ, training=None if units is None else units.environment),
        ]

    def _end(self, around: Around, units: UnitsSeen | None, checks: StoreChecks) -> None:
        """Who takes the machine, how long that leaves, and whether a last save fits."""
        subject = self._subject
        left = window.shortest(around, grace=self._grace, given=subject.window_seconds)
        self._found.append(surroundings.provider(around))
        if not subject.machine:
            self._found.append(fit.needed_rate(checks.state, left))
            return
        self._found += window.stop(units, left, self._environ, grace=self._grace)
        if checks.upload is None:
            self._missed.append("last-save")
            return
        speeds = fit.Speeds(
            copy=self._memory.copy_rate or fit.COPY_RATE, upload=checks.upload.bytes_per_second
        )
        self._found.append(fit.last_save(checks.state, speeds, left, every=subject.config.save.every))

    def _waited(self, check: str, future: "Future[T]") -> Sequence[T]:
        """The answer, or none: then that is a finding."""
        try:
            return [self._together.result(future)]
        except OutliveError as error:
            self._found.append(failed(check, error))
            return []
