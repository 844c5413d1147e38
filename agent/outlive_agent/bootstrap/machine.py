"""Makes a machine ready for its run: units and users, then the agent, then the training. Done once.

Each stage leaves a stamp with what it was done for; a reboot goes on where the last one stopped.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import ConfigError, OutliveError
from outlive_agent.bootstrap import wall
from outlive_agent.bootstrap.plan import Plan
from outlive_agent.bootstrap.steps import Account, run
from outlive_agent.bootstrap.templates import text_of
from outlive_agent.bootstrap.training import Installer
from outlive_agent.exits import Exit
from outlive_agent.journal import Journal
from outlive_agent.units import duration_text

ENABLED = ("outlive-agent.service", "outlive-train.service")
UNITS = (*ENABLED, "outlive-train-failed.service")
COMMAND = Path("/opt/outlive/venv/bin/outlive")
DONE = {
    "agent": "the agent is installed and starts",
    "code": "the training's code is here",
    "packages": "the training's packages are here",
}
NAME_SERVER = """\
# Names come from the metadata server's address here, so it can't be denied whole; ExecStartPre bars TCP.
[Service]
IPAddressDeny=
"""
AGAIN = "then: systemctl restart outlive-bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where everything lies on a machine."""

    etc: Path = Path("/etc/outlive")
    units: Path = Path("/etc/systemd/system")
    sysusers: Path = Path("/etc/sysusers.d/outlive.conf")
    state: Path = Path("/var/lib/outlive-bootstrap")
    training: Path = Path("/var/lib/outlive-train")
    venv: Path = Path("/opt/outlive/train")
    command: Path = Path("/usr/local/bin/outlive")


class Machine:
    """One machine, on its way to being ready."""

    def __init__(self, places: Places, journal: Journal) -> None:
        self.places = places
        self.journal = journal
        self.plan = _plan(places.etc / "job.json")

    def prepare(self) -> None:
        """Everything that is not done yet. ``OutliveError`` if it can't be."""
        self.places.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._stage("agent", "".join(text_of(f"systemd/{name}") for name in UNITS), self._start_agent)
        installer = self._installer()
        if not self.plan.metadata:
            wall.main([self.plan.user])
        code = repr((self.plan.source, self.plan.user))
        self._stage("code", code, installer.fetch_source)
        packages = repr((code, self.plan.environment, self.plan.package, self.plan.subdirectory))
        self._stage("packages", packages, installer.make_environment)
        ready = self.places.state / "ready"
        if not ready.exists():
            ready.touch()
            self.journal.notice("everything is installed: the training starts")
            run(["systemctl", "start", "--no-block", "outlive-train.service"])

    def _stage(self, name: str, subject: str, action: Callable[[], None]) -> None:
        """Do ``action`` unless it was done for the same ``subject``."""
        stamp = self.places.state / name
        wanted = hashlib.sha256(subject.encode()).hexdigest()
        if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
            return
        stamp.unlink(missing_ok=True)
        if name != "agent":
            (self.places.state / "ready").unlink(missing_ok=True)
        began = time.monotonic()
        action()
        stamp.write_text(wanted, encoding="ascii")
        self.journal.info(f"{DONE[name]} ({duration_text(time.monotonic() - began)})")

    def _start_agent(self) -> None:
        self._link_command()
        self.places.sysusers.parent.mkdir(exist_ok=True)
        self.places.sysusers.write_text(text_of("systemd/outlive-sysusers.conf"), encoding="utf-8")
        run(["systemd-sysusers", self.places.sysusers])
        for unit in UNITS:
            (self.places.units / unit).write_text(text_of(f"systemd/{unit}"), encoding="utf-8")
        if wall.name_server_among(_read(Path("/etc/resolv.conf"))):
            dropin = self.places.units / "outlive-train.service.d" / "name-server.conf"
            dropin.parent.mkdir(exist_ok=True)
            dropin.write_text(NAME_SERVER, encoding="utf-8")
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "--quiet", "enable", *ENABLED])
        run(["systemctl", "start", "--no-block", "outlive-agent.service"])

    def _link_command(self) -> None:
        """Let `sudo outlive ls` work at a shell, unless another outlive is there already."""
        if not self.places.command.exists():
            self.places.command.unlink(missing_ok=True)  # a link that leads nowhere
            self.places.command.parent.mkdir(parents=True, exist_ok=True)
            self.places.command.symlink_to(COMMAND)

    def _installer(self) -> Installer:
        account = Account.of(self.plan.user, self.places.training)
        for path in (account.home, account.home / "tmp"):
            path.mkdir(mode=0o700, exist_ok=True)
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
        return Installer(
            plan=self.plan,
            account=account,
            scratch=self.places.state,
            venv=self.places.venv,
            config=self.places.etc / "outlive.yaml",
            journal=self.journal,
        )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _plan(file: Path) -> Plan:
    try:
        return Plan.decode(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{file} is missing", hint="make user-data with `outlive user-data`, for a new machine"
        ) from None


def main() -> int:
    """What outlive-bootstrap ends in."""
    journal = Journal.standard(os.environ)
    try:
        Machine(Places(), journal).prepare()
    except OutliveError as error:
        journal.error(
            f"this machine can't train yet: {error}", hint=f"{error.hint or 'see the lines above'}; {AGAIN}"
        )
        return Exit.FAILED
    except OSError as error:
        journal.error(f"this machine can't train yet: {error}", hint=f"is the disk full? {AGAIN}")
        return Exit.FAILED
    return Exit.FINISHED


if __name__ == "__main__":
    sys.exit(main())
