"""The job file: what to train, where to save it, on which kind of machine. Strict, all problems at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from outlive_agent.bootstrap import job_readers as read
from outlive_agent.bootstrap.job_readers import FromEnv
from outlive_agent.bootstrap.package import default_package
from outlive_agent.bootstrap.plan import Environment
from outlive_agent.settings.checks import KeyPath, Problems, Section
from outlive_agent.settings.document import parse
from outlive_agent.settings.readers import command, duration, truth
from outlive_agent.settings.reading import COMMAND, HOOKS, read_config
from outlive_agent.settings.text import read_text
from outlive_agent.settings.values import Config

CONFIG_KEYS = ("run", "store", "save", "reclaim", "hooks")
"""What a job file shares with the agent's configuration, in the same form."""
MACHINE = "machine"
"""``store: {credentials: machine}``: no keys travel, the machine has a role of its own."""
REQUIREMENTS: KeyPath = ("training", "requirements")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    url: str
    ref: str = "HEAD"
    token: FromEnv | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The code, its Python environment, and the command."""

    source: Repository | str | None
    """A repository, an archive (a URL, or a file here), or None: it lies in ``directory`` on the machine."""
    directory: str | None
    subdirectory: str
    environment: Environment
    command: tuple[str, ...]
    variables: Mapping[str, str | FromEnv]
    user: str
    writable: tuple[str, ...]
    stop_grace: timedelta
    metadata: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked job file. ``shared`` is what the agent's configuration takes over, as it was written."""

    config: Config
    shared: Mapping[str, object]
    machine_role: bool
    provider: str
    package: str
    training: Training


def load(path: Path) -> Job:
    """The job in this file. ``ConfigError`` with everything that is wrong in it."""
    text = read_text(path, otherwise="outlive user-data --example > job.yaml", what="job file")
    return read_job(text, name=str(path))


def read_job(text: str, *, name: str) -> Job:
    document = parse(
        text, name=name, verbatim=frozenset({COMMAND, *HOOKS, REQUIREMENTS, ("training", "environment")})
    )
    problems = Problems({place: f"line {line}" for place, line in document.lines.items()})
    for repeated in document.repeated:
        problems.add(repeated, "given twice")
    top = Section(document.content, (), problems)
    shared = {key: top.content[key] for key in CONFIG_KEYS if key in top.content}
    top.known += CONFIG_KEYS
    shared, machine_role = _without_role(shared)
    agent = top.section("agent")
    job = Job(
        config=read_config(shared, problems),
        shared=shared,
        machine_role=machine_role,
        provider=top.take("provider", read.provider, "other"),
        package=agent.take("package", read.package, default_package()),
        training=_training(top.section("training")),
    )
    agent.close()
    top.close()
    if "://" not in job.config.store.location and _mapping(shared.get("store")).get("location"):
        problems.add(
            ("store", "location"), "a directory does not outlive its machine; expected s3://bucket/prefix"
        )
    problems.raise_any(name)
    return job


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _without_role(shared: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    store = shared.get("store")
    if not isinstance(store, Mapping) or store.get("credentials") != MACHINE:
        return dict(shared), False
    return {**shared, "store": {key: value for key, value in store.items() if key != "credentials"}}, True


def _training(section: Section) -> Training:
    source, directory = _source(section)
    variables = section.section("environment")
    found = Training(
        source=source,
        directory=directory,
        subdirectory=section.take("subdirectory", read.inner_path, "."),
        environment=_environment(section),
        command=section.require("command", _command, ("true",)),
        variables=_variables(variables),
        user=section.take("user", read.user, "train"),
        writable=section.take("writable", read.paths, ()),
        stop_grace=section.take("stop_grace", duration, timedelta(seconds=30)),
        metadata=section.take("metadata", truth, False),
    )
    section.close()
    return found


def _source(section: Section) -> tuple[Repository | str | None, str | None]:
    repository = section.content.get("repository")
    inner = Section(
        repository if isinstance(repository, Mapping) else {"url": repository},
        (*section.path, "repository"),
        section.problems,
    )
    archive = section.take("archive", _archive, None)
    directory = section.take("directory", read.absolute_path, None)
    given = [key for key in ("repository", "archive", "directory") if section.content.get(key) is not None]
    section.known.append("repository")
    if len(given) != 1:
        got = " and ".join(given) or "none"
        section.problems.add(section.path, f"needs exactly one of repository, archive, directory; got {got}")
    if repository is None:
        return archive, directory
    found = Repository(
        url=inner.require("url", read.git_url, "https://invalid"),
        ref=inner.take("ref", read.git_ref, "HEAD"),
        token=inner.take("token", read.from_env, None),
    )
    inner.close()
    return found, None


def _environment(section: Section) -> Environment:
    found = Environment(
        venv=section.take("venv", read.absolute_path, None),
        python=section.take("python", read.python, "python3"),
        system_packages=section.take("system_packages", truth, False),
        requirements=section.take("requirements", read.requirements, None),
    )
    if found.venv:
        for key in {"python", "system_packages", "requirements"} & section.content.keys():
            section.problems.add((*section.path, key), "not together with venv, which is used as it is")
    return found


def _variables(section: Section) -> dict[str, str | FromEnv]:
    found: dict[str, str | FromEnv] = {}
    for key in section.content:
        if not read.is_name(key) or key.startswith("OUTLIVE_"):
            section.known.append(key)
            section.problems.add(
                (*section.path, key), "expected the name of a variable, not beginning with OUTLIVE_"
            )
            continue
        nothing: str | FromEnv = ""
        found[key] = section.take(key, _reader(key), nothing)
    return found


def _reader(name: str) -> Callable[[object], str | FromEnv]:
    return lambda value: read.variable(name, value)


def _command(value: object) -> tuple[str, ...]:
    words = command(value)
    if any("\0" in word for word in words):
        raise ValueError("words without the character NUL")
    if "=" in words[0]:
        raise ValueError("a program first, not an assignment; variables belong into training.environment")
    return words


def _archive(value: object) -> str:
    """A URL, or a file here that will be uploaded."""
    if isinstance(value, str) and "://" in value:
        return read.https(value)
    if isinstance(value, str) and value.endswith((".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")):
        return value
    raise ValueError(
        "an https URL, or a file here: .tar.gz, .tar.xz, .tar or .zip; git archive -o code.tar.gz HEAD"
    )
