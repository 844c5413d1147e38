"""From a job and the secrets it refers to, to the one text that makes a machine run it."""

import json
import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outlive import __version__
from outlive.errors import ConfigError
from outlive.objects.credentials import Credentials, find_credentials
from outlive.objects.sealed import find_seal
from outlive_agent.bootstrap import unit_text
from outlive_agent.bootstrap.job import Job, Repository, Training
from outlive_agent.bootstrap.job_readers import FromEnv
from outlive_agent.bootstrap.plan import Archive, Git, Plan
from outlive_agent.bootstrap.templates import fill, text_of
from outlive_agent.settings.credentials import credentials_for, seal_variables

MASK = "********"
CREDENTIAL = "credentials"
"""The name under which the agent's unit loads the keys."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEYS_HINT = (
    "set OUTLIVE_S3_ACCESS_KEY_ID and OUTLIVE_S3_SECRET_ACCESS_KEY, or name a place in store.credentials; "
    "`store: {credentials: machine}` if the machine has a role that opens the bucket"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Everything secret that a job refers to."""

    keys: Credentials | None
    """None: the machine has a role of its own."""
    variables: Mapping[str, str]
    """By the names of the variables here, not of the training's."""
    seal: Mapping[str, str] = field(default_factory=dict)
    """The variable with the key that the store's objects are sealed with, if they are."""

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.variables)})"

    def masked(self) -> "Secrets":
        """The same shape with nothing in it, to show."""
        keys = self.keys and Credentials(
            access_key=MASK, secret_key=MASK, session_token=self.keys.session_token and MASK
        )
        return replace(
            self,
            keys=keys,
            variables=dict.fromkeys(self.variables, MASK),
            seal=dict.fromkeys(self.seal, MASK),
        )


def collect(job: Job, environ: Mapping[str, str]) -> Secrets:
    """The secrets from where the job file says they are, on this machine."""
    names = {value.name for value in job.training.variables.values() if isinstance(value, FromEnv)}
    source = job.training.source
    if isinstance(source, Repository) and source.token:
        names.add(source.token.name)
    if missing := sorted(name for name in names if not environ.get(name)):
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"{' and '.join(missing)} {verb} not set here",
            hint="set what {from_env: ...} in the job file names",
        )
    if unusable := sorted(name for name in names if not environ[name].isprintable()):
        raise ConfigError(
            f"{' and '.join(unusable)}: line breaks or control characters", hint="set it to a single line"
        )
    variables = {name: environ[name] for name in sorted(names)}
    seal = seal_variables(job.config.store, environ)
    find_seal(seal)  # what is no key is refused here, not on the machine
    return Secrets(keys=_keys(job, environ), variables=variables, seal=seal)


def _keys(job: Job, environ: Mapping[str, str]) -> Credentials | None:
    if job.machine_role:
        return None
    keys = credentials_for(job.config.store, environ)
    if keys is None:
        keys = find_credentials(None, environ)
    if keys is None:
        raise ConfigError("there are no keys for the bucket", hint=_KEYS_HINT)
    return keys


def render(job: Job, secrets: Secrets, *, archive: Archive | None = None) -> str:
    """The whole ``#cloud-config``. ``archive`` is where an uploaded one went."""
    plan = Plan(
        package=job.package,
        source=archive or _source(job.training, secrets),
        subdirectory=job.training.subdirectory,
        environment=job.training.environment,
        user=job.training.user,
        metadata=job.training.metadata,
    )
    variables = {
        name: secrets.variables[value.name] if isinstance(value, FromEnv) else value
        for name, value in job.training.variables.items()
    }
    bootstrap = fill(text_of("cloud-init/bootstrap.sh"), {"package": shlex.quote(job.package)})
    return fill(
        text_of("cloud-init/user-data.yaml"),
        {
            "run": job.config.run,
            "version": __version__,
            "config": config_text(job, sealed=bool(secrets.seal)),
            "credentials": _credentials_text(secrets),
            "plan": plan.encode(),
            "unit": unit(job),
            "environment": _content(unit_text.environment_file(variables) or "# nothing"),
            "bootstrap": bootstrap,
        },
    )


def config_text(job: Job, *, sealed: bool = False) -> str:
    """The agent's configuration: what the job file says, and where systemd puts the keys."""
    shared = dict(job.shared)
    store = {**_mapping(shared["store"])}
    if sealed or not job.machine_role:
        store["credentials"] = {"systemd": CREDENTIAL}
    training = {
        "user": job.training.user,
        "stop_grace": f"{_seconds(job)}s",
        "command": list(job.training.command),
    }
    return "\n".join(yaml_lines({**shared, "store": store, "training": training}, ""))


def unit(job: Job) -> str:
    """What outlive-train.service runs, as a drop-in."""
    training = job.training
    directory = training.directory or "/var/lib/outlive-train/source"
    venv = training.environment.venv or "/opt/outlive/train"
    lines = [
        "[Service]",
        f"WorkingDirectory={directory}"
        + ("" if training.subdirectory == "." else f"/{training.subdirectory}"),
        "ExecStart=",
        f"ExecStart=/usr/bin/env {unit_text.command(training.command)}",
        f"Environment={unit_text.assignment('OUTLIVE_RUN', job.config.run)}",
        f"TimeoutStopSec={_seconds(job)}",
    ]
    if training.environment.venv:
        lines.append(f"Environment=VIRTUAL_ENV={venv} PATH={venv}/bin:{PATH}")
    if training.user != "train":
        wall = f"+-/opt/outlive/venv/bin/python -I -m outlive_agent.bootstrap.wall {training.user}"
        lines += [f"User={training.user}", "Group=", "ExecStartPre=", f"ExecStartPre={wall}"]
    if training.metadata:
        lines += [
            "# It may ask the metadata server, so it can read this machine's user data, keys and all.",
            "IPAddressDeny=",
        ]
        lines += ["ExecStartPre="]
    if training.writable:
        lines.append(f"ReadWritePaths={' '.join(training.writable)}")
    if any(path.startswith(("/home/", "/root/")) for path in (directory, venv, *training.writable)):
        lines.append("ProtectHome=no")
    return "\n".join(lines)


def _seconds(job: Job) -> int:
    return max(1, round(job.training.stop_grace.total_seconds()))


def _source(training: Training, secrets: Secrets) -> Git | Archive | None:
    source = training.source
    if isinstance(source, Repository):
        token = secrets.variables[source.token.name] if source.token else None
        return Git(url=source.url, ref=source.ref, token=token)
    return Archive(url=source) if source else None


def _credentials_text(secrets: Secrets) -> str:
    keys = secrets.keys
    if keys is None:
        lines = ["# no keys: the machine has a role that opens the bucket"]
    else:
        lines = [
            f"OUTLIVE_S3_ACCESS_KEY_ID={keys.access_key}",
            f"OUTLIVE_S3_SECRET_ACCESS_KEY={keys.secret_key}",
        ]
        if keys.session_token:
            lines.append(f"OUTLIVE_S3_SESSION_TOKEN={keys.session_token}")
    return "\n".join([*lines, *(f"{name}={value}" for name, value in secrets.seal.items())])


_PLAIN = re.compile(
    r"[A-Za-z/][A-Za-z0-9 ._/@+-]*(?<! )|https?://[A-Za-z0-9._/:-]+|s3://[A-Za-z0-9._/-]+|[0-9]+[a-z]+"
)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def yaml_lines(content: Mapping[str, object], indent: str = "") -> list[str]:
    """A mapping in block style; what is not evidently text is quoted, so that no reader guesses."""
    lines = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{_scalar(key)}:", *yaml_lines(value, indent + "  ")] if value else []
        elif isinstance(value, list):
            lines.append(f"{indent}{_scalar(key)}: [{', '.join(_scalar(item) for item in value)}]")
        else:
            lines.append(f"{indent}{_scalar(key)}: {_scalar(value)}")
    return lines


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _quoted(value)


def _quoted(value: object) -> str:
    """In ASCII: where user-data is compressed, cloud-init takes anything else for Latin-1."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isascii() and char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _content(text: str) -> str:
    """The content of a file, readable if it is ASCII."""
    return f"content: |\n{textwrap.indent(text, '  ')}" if text.isascii() else f"content: {_quoted(text)}"


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
