"""Runs the programs that installing takes: output to the journal, patience, and one clear end."""

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from outlive.errors import OutliveError
from outlive_agent.journal import Journal

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_SECONDS = 3600
T = TypeVar("T")


class StepFailed(OutliveError):
    """A step of the installation did not succeed; the message says why, in its program's last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a program runs as. ``home`` is where it may write."""

    name: str
    uid: int
    gid: int
    home: Path

    @classmethod
    def of(cls, name: str, home: Path) -> "Account":
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise StepFailed(
                f"there is no user {name} on this machine",
                hint="leave training.user out of the job file, or name one that the image has",
            ) from None
        return cls(name=name, uid=entry.pw_uid, gid=entry.pw_gid, home=home)

    @property
    def switch(self) -> tuple[str, ...]:
        """The words before a command that make it run as this user, with no way back."""
        if os.geteuid() == self.uid:
            return ()
        ids = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")
        return ("setpriv", *ids, "--no-new-privs", "--inh-caps=-all", "--")


def run(
    words: Sequence[str | Path],
    *,
    account: Account | None = None,
    directory: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end, with what it prints in the journal. ``StepFailed`` with its last words."""
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    environment |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    switch: tuple[str, ...] = ()
    if account is not None:
        environment |= {"HOME": str(account.home), "TMPDIR": str(account.home / "tmp")}
        switch = account.switch
    with subprocess.Popen(  # noqa: S603 - the point of this module
        [*switch, *map(str, words)],
        cwd=directory,
        env=environment | dict(variables or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        umask=0o077 if account else -1,
    ) as process:
        last = _pass_on(process)
    if process.returncode != 0:
        raise StepFailed(f"{words[0]}: {last or f'exit status {process.returncode}'}")


def _pass_on(process: "subprocess.Popen[str]") -> str:
    """Copy the output, and return the line that says best what went wrong."""
    last = complaint = ""
    assert process.stdout is not None  # noqa: S101 - asked for above
    for line in process.stdout:
        print(line, end="", flush=True)
        if text := line.strip():
            last = text
            if text.lower().startswith(("error", "fatal", "e:")):
                complaint = text
    return complaint or last


def persistently(step: Callable[[], T], journal: Journal, *, what: str) -> T:
    """Take a step that needs the network or a lock, again and again for about a minute, then fail."""
    tries = int(os.environ.get("OUTLIVE_BOOTSTRAP_TRIES", "6"))
    for attempt in range(1, tries):
        try:
            return step()
        except OutliveError as error:
            journal.notice(f"{what} failed: {error}; again in {attempt * 5} s")
            time.sleep(attempt * 5)
    try:
        return step()
    except OutliveError as error:
        raise StepFailed(f"{what} failed: {error}", hint=error.hint) from error


def install_packages(names: Sequence[str], journal: Journal) -> None:
    """Packages of the distribution, where it is one that has apt-get."""
    if not Path("/usr/bin/apt-get").exists():
        raise StepFailed(
            f"{' and '.join(names)} missing, and no apt-get here", hint="choose an image that has them"
        )
    apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")

    def install() -> None:
        run([*apt, "update"])
        run([*apt, "install", "--no-install-recommends", *names])

    persistently(install, journal, what=f"installing {' and '.join(names)}")


def interpreter_can(python: str | Path, code: str, *, account: Account) -> bool:
    """Whether ``code`` runs there without an error. It may be the account's own, so not as root."""
    words = [*account.switch, str(python), "-I", "-c", code]
    try:
        found = subprocess.run(words, env={"PATH": PATH}, capture_output=True, timeout=120, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0
