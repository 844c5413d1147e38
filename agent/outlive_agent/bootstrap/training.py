"""Installs what the training needs, as the training's user: its code, then its Python environment."""

import base64
import os
import re
import shutil
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from outlive_agent.bootstrap.plan import Archive, Git, Plan, requirement
from outlive_agent.bootstrap.steps import (
    Account,
    StepFailed,
    install_packages,
    interpreter_can,
    persistently,
    run,
)
from outlive_agent.journal import Journal

AT_MOST = 1 << 30
_FINDS = "import sys, importlib.util as u; sys.exit(not (u.find_spec('outlive') and u.find_spec('torch')))"
"""Not imported: that takes seconds, in which the training could start."""
_TORCH = re.compile(r"^\s*(?:torch(?![\w.-])|.*/torch-\d)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """Where things go, and who does it.

    What happens in ``home`` happens as its owner: root would follow the links that training code lays out.
    """

    plan: Plan
    account: Account
    scratch: Path
    """Root's own directory."""
    venv: Path
    config: Path
    journal: Journal

    @property
    def home(self) -> Path:
        return self.account.home

    @property
    def source(self) -> Path:
        return self.home / "source"

    def fetch_source(self) -> None:
        """The code, complete or not there at all."""
        source = self.plan.source
        if isinstance(source, Git):
            if shutil.which("git", path="/usr/bin:/usr/local/bin") is None:
                install_packages(["git"], self.journal)
            persistently(lambda: self._clone(source), self.journal, what=f"cloning {source.url}")
        elif source is not None:
            persistently(lambda: self._unpack(source), self.journal, what=f"fetching {source.name}")
        directory = self.source / self.plan.subdirectory
        if source is not None and not directory.is_dir():
            raise StepFailed(
                f"there is no {self.plan.subdirectory} in the code", hint="check training.subdirectory"
            )

    def make_environment(self) -> None:
        """The training's Python environment."""
        environment = self.plan.environment
        if environment.venv:
            python = Path(environment.venv) / "bin" / "python"
            if not interpreter_can(python, _FINDS, account=self.account):
                raise StepFailed(
                    f"{python} does not have outlive and torch",
                    hint="install outlive[train] there, or leave out training.venv",
                )
            return
        if not interpreter_can(environment.python, "import ensurepip", account=self.account):
            install_packages([f"{Path(environment.python).name}-venv"], self.journal)
        self.venv.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(self.venv, self.account.uid, self.account.gid)
        options = ["--system-site-packages"] if environment.system_packages else []
        self._run([environment.python, "-m", "venv", "--clear", *options, self.venv])
        persistently(self._install_packages, self.journal, what="installing the training's packages")
        self._run(["rm", "-rf", self.home / "pip"])

    def _clone(self, source: Git) -> None:
        draft = self._draft()
        variables = _git_variables(source)
        git = ("git", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-C", draft)
        self._run(["git", "init", "--quiet", draft])
        self._run([*git, "remote", "add", "origin", source.url])
        self._run([*git, "fetch", "--quiet", "--depth=1", "origin", source.ref], variables)
        self._run([*git, "checkout", "--quiet", "FETCH_HEAD"])
        self._run([*git, "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"], variables)
        self._run(["mv", draft, self.source])

    def _unpack(self, source: Archive) -> None:
        draft = self._draft()
        file = self.scratch / "archive"
        if source.url:
            _download(source.url, file)
        else:
            file.write_bytes(self._object(str(source.key)))
        os.chown(file, self.account.uid, self.account.gid)
        self._run(["python3", "-I", "-c", _UNPACK, file, draft, self.source])
        file.unlink()

    def _object(self, key: str) -> bytes:
        from outlive_agent.bootstrap.archive import check_archive  # late, as all that knows the store
        from outlive_agent.config import load, open_configured_store

        environ = {**os.environ, "CREDENTIALS_DIRECTORY": str(self.config.parent)}
        content = open_configured_store(load(self.config), environ).get(key, at_most=AT_MOST)
        check_archive(key, content)  # or whoever may write to the bucket could run code here
        return content

    def _install_packages(self) -> None:
        wanted, listed = self._requirements()
        python = self.venv / "bin" / "python"
        torch = bool(_TORCH.search(listed)) or interpreter_can(python, "import torch", account=self.account)
        outlive = requirement(self.plan.package, "" if torch else "train")
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        directory = self.source / self.plan.subdirectory if self.plan.source else self.home
        self._run([*pip, "--cache-dir", self.home / "pip", *wanted, outlive], directory=directory)

    def _requirements(self) -> tuple[list[str | Path], str]:
        """What pip is told beside outlive, and the text that decides whether torch is among it."""
        given = self.plan.environment.requirements
        if given is None:
            return [], ""
        if isinstance(given, str):
            file = self.source / self.plan.subdirectory / given
            if not file.is_file():
                raise StepFailed(f"there is no {given} in the code", hint="check training.requirements")
        else:
            file = self.scratch / "requirements.txt"
            file.write_text("\n".join(given) + "\n", encoding="utf-8")
            os.chown(file, self.account.uid, self.account.gid)
        return ["-r", file], file.read_text(encoding="utf-8", errors="replace")

    def _draft(self) -> Path:
        """An empty directory beside the final place, so that the code appears in one go."""
        draft = self.home / "source.new"
        self._run(["rm", "-rf", self.source, draft])
        self._run(["mkdir", draft])
        return draft

    def _run(
        self,
        words: list[str | Path],
        variables: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
    ) -> None:
        run(words, account=self.account, directory=directory or self.home, variables=variables)


def _git_variables(source: Git) -> dict[str, str]:
    """Never ask at a terminal. A token goes to its own host only, not by arguments, which are public."""
    variables = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    if source.token:
        host = urlsplit(source.url).netloc
        basic = base64.b64encode(f"outlive:{source.token}".encode()).decode()
        variables |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.https://{host}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
        }
    return variables


def _download(url: str, file: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, file.open("wb") as out:  # noqa: S310 - https, by the reader
            _copy(answer, out, url)
    except OSError as error:
        raise StepFailed(f"{url}: {error}") from None


def _copy(answer: IO[bytes], out: IO[bytes], url: str) -> None:
    size = 0
    while block := answer.read(1 << 20):
        size += len(block)
        if size > AT_MOST:
            raise StepFailed(
                f"{url}: larger than 1 GiB", hint="code belongs into the archive, data elsewhere"
            )
        out.write(block)


_UNPACK = """
import os, sys, tarfile, zipfile
file, draft, final = sys.argv[1:]
if zipfile.is_zipfile(file):
    zipfile.ZipFile(file).extractall(draft)
else:
    with tarfile.open(file) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(draft, **safe)
found = [entry for entry in os.scandir(draft)]
alone = len(found) == 1 and found[0].is_dir(follow_symlinks=False)  # one directory with everything in it
os.rename(found[0].path if alone else draft, final)
if alone:
    os.rmdir(draft)
"""
"""Runs as the training's user, so that an archive can do no more than the training may."""
