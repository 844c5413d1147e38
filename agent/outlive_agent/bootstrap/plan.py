"""What a machine has to install: written where the user-data is made, read on the machine."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from outlive.errors import ConfigError

FORMAT = "outlive/job"
VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """A repository, at a branch, a tag or a commit. ``token`` opens a private one over https."""

    url: str
    ref: str = "HEAD"
    token: str | None = None

    def __repr__(self) -> str:
        return f"Git(url={self.url!r}, ref={self.ref!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A tar file, compressed or not, or a zip file: at an https address, or an object in the run's store."""

    url: str | None = None
    key: str | None = None

    @property
    def name(self) -> str:
        return self.url or f"the store's {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The training's Python environment: one to make, or (``venv``) one that the image brings along."""

    venv: str | None = None
    python: str = "python3"
    system_packages: bool = False
    """Whether it sees the packages of ``python``, such as the torch of a GPU image."""
    requirements: str | tuple[str, ...] | None = None
    """A file in the source, or the lines of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything the machine needs to know beside the agent's configuration."""

    package: str
    """What pip installs as the agent, and with ``[train]`` for the training."""
    source: Git | Archive | None
    """None: the code is on the machine already."""
    subdirectory: str = "."
    environment: Environment = Environment()
    user: str = "train"
    metadata: bool = False
    """Whether the training may ask the cloud's metadata server."""

    def encode(self) -> str:
        """One JSON document, in ASCII, for people too."""
        source: dict[str, object] | None = None
        if isinstance(self.source, Git):
            source = {"git": self.source.url, "ref": self.source.ref}
            if self.source.token:
                source["token"] = self.source.token
        elif isinstance(self.source, Archive):
            source = {"url": self.source.url} if self.source.url else {"object": self.source.key}
        environment = self.environment
        made = {
            "python": environment.python,
            "system_packages": environment.system_packages,
            "requirements": environment.requirements,
        }
        document = {
            "format": FORMAT,
            "version": VERSION,
            "package": self.package,
            "source": source,
            "subdirectory": self.subdirectory,
            "environment": {"venv": environment.venv} if environment.venv else made,
            "user": self.user,
            "metadata": self.metadata,
        }
        return json.dumps(document, indent=1)

    @classmethod
    def decode(cls, text: str) -> "Plan":
        """The reverse. ``ConfigError`` if it is anything else."""
        try:
            document = json.loads(text)
            _check_version(document)
            return cls(
                package=_of(str, document["package"]),
                source=_source(document["source"]),
                subdirectory=_of(str, document["subdirectory"]),
                environment=_environment(document["environment"]),
                user=_of(str, document["user"]),
                metadata=_of(bool, document["metadata"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigError(
                "the job is not of a form that this version of outlive understands",
                hint="make new user-data with `outlive user-data`, with the same version as agent.package",
            ) from None


def requirement(package: str, extra: str = "") -> str:
    """What to tell pip to install ``package`` (a version, a URL, a git address, a wheel), with an extra."""
    name = f"outlive[{extra}]" if extra else "outlive"
    if match := re.fullmatch(r"outlive(?:\[[^]]*\])?(?:\s*@\s*)?(.*)", package):
        return f"{name} @ {match[1]}" if "@" in package else f"{name}{match[1]}"
    return f"{name} @ file://{package}" if package.startswith("/") else f"{name} @ {package}"


def _check_version(document: Mapping[str, object]) -> None:
    if (document["format"], document["version"]) != (FORMAT, VERSION):
        raise ValueError("another format or version")


def _of(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected")
    return value


def _source(value: Mapping[str, object] | None) -> Git | Archive | None:
    if value is None:
        return None
    if "git" in value:
        token = value.get("token")
        return Git(
            url=_of(str, value["git"]),
            ref=_of(str, value["ref"]),
            token=None if token is None else _of(str, token),
        )
    return Archive(url=_of(str, value["url"])) if "url" in value else Archive(key=_of(str, value["object"]))


def _environment(value: Mapping[str, object]) -> Environment:
    if "venv" in value:
        return Environment(venv=_of(str, value["venv"]))
    given = value["requirements"]
    listed = tuple(_of(str, line) for line in given) if isinstance(given, list) else None
    return Environment(
        python=_of(str, value["python"]),
        system_packages=_of(bool, value["system_packages"]),
        requirements=listed if given is None or listed is not None else _of(str, given),
    )
