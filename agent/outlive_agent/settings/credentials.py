"""Fetches the store's keys from where the configuration says. Messages name places, never contents."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from outlive.errors import ConfigError
from outlive.objects.credentials import Credentials, find_credentials
from outlive.objects.sealed import ENCRYPTION_KEY, SIGNING_KEY, Seal, find_seal
from outlive_agent.settings.values import CredentialsFrom, StoreSettings

AT_MOST = 1 << 16
LOADED_FROM = Path("/etc/outlive")
"""Where outlive-agent.service loads its credentials from. Only root may read them there."""
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_WANTED = "write two lines, OUTLIVE_S3_ACCESS_KEY_ID=... and OUTLIVE_S3_SECRET_ACCESS_KEY=..."


def credentials_for(store: StoreSettings, environ: Mapping[str, str]) -> Credentials | None:
    """The keys; None where the configuration names no place: the store looks into the environment itself."""
    source = store.credentials
    if source is None:
        return None
    if source.env is not None:
        return _from_environment(source.env, environ)
    return _from_file(*_file(source, environ))


def seal_for(store: StoreSettings, environ: Mapping[str, str]) -> Seal | None:
    """What the store's objects are sealed with, if anything."""
    try:
        return find_seal(seal_variables(store, environ))
    except ConfigError as error:
        place = store.credentials and (store.credentials.file or store.credentials.systemd)
        raise ConfigError(f"{place}: {error}" if place else str(error), hint=error.hint) from None


def seal_variables(store: StoreSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The key to seal objects with, by the name of its variable. It stands where the store's keys stand."""
    source = store.credentials
    given = environ if source is None or source.env is not None else _variables(*_file(source, environ))
    return {name: given[name] for name in (ENCRYPTION_KEY, SIGNING_KEY) if given.get(name)}


def _file(source: CredentialsFrom, environ: Mapping[str, str]) -> tuple[Path, bool]:
    """The file that is meant, and whether it must be private: systemd sees to it for its own."""
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if source.systemd is not None and directory:
        return Path(directory) / source.systemd, False
    return source.file or _behind(str(source.systemd)), True


def _from_environment(names: tuple[str, ...], environ: Mapping[str, str]) -> Credentials:
    missing = [name for name in names if not environ.get(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"store.credentials.env: {' and '.join(missing)} {verb} not set in the environment",
            hint="set it where the agent starts, or use credentials: {file: /etc/outlive/credentials}",
        )
    values = [environ[name] for name in names]
    return Credentials(
        access_key=values[0], secret_key=values[1], session_token=values[2] if values[2:] else None
    )


def _behind(credential: str) -> Path:
    """The file behind a credential: what root reads at a shell, where systemd hands over nothing."""
    path = LOADED_FROM / credential
    try:
        there = path.exists()
    except PermissionError:
        there = True  # and refused when it is opened
    if not there:
        raise ConfigError(
            f"store.credentials.systemd: {credential} can't be read, since systemd started no unit here, "
            f"and {path} is not there",
            hint=f"run this from a unit with LoadCredential={credential}:{path}",
        )
    return path


def _from_file(path: Path, private: bool) -> Credentials | None:
    variables = _variables(path, private)
    try:
        found = find_credentials(None, variables)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", hint=_WANTED) from None
    if found is None and not any(name in variables for name in (ENCRYPTION_KEY, SIGNING_KEY)):
        raise ConfigError(f"{path}: no keys in it", hint=_WANTED)
    return found


def _variables(path: Path, private: bool) -> dict[str, str]:
    """The assignments of an environment file: comments, empty lines, ``export`` and quotes as usual."""
    raw = _read(path, private=private)
    variables = {}
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise ConfigError(f"{path}, line {number}: not NAME=VALUE", hint=_WANTED)
        value = match[2].strip()
        quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
        variables[match[1]] = value[1:-1] if quoted else value
    return variables


def _read(path: Path, *, private: bool) -> bytes:
    try:
        with path.open("rb") as file:
            # Asked of the open file: a check by name could be of another file than the one that is read.
            if private and os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise ConfigError(f"{path}: every user of this machine can read it", hint=f"chmod 600 {path}")
            raw = file.read(AT_MOST + 1)
    except OSError as error:
        reason = (error.strerror or "it can't be read").lower()
        raise ConfigError(f"{path}: {reason}", hint=_hint(error, path)) from None
    if len(raw) > AT_MOST:
        raise ConfigError(f"{path}: too large to hold keys", hint=_WANTED)
    return raw


def _hint(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{_WANTED}, then chmod 600 {path}"
    return "run this as the user who owns it, such as root: sudo outlive ..."


def private_line(path: Path) -> str:
    """The one line of a file that holds a token, which not everybody may read."""
    wanted = f"write the token into {path}, then chmod 600 {path}"
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise ConfigError(f"{path}: every user of this machine can read it", hint=f"chmod 600 {path}")
            line = file.read(AT_MOST).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or 'unreadable').lower()}", hint=wanted) from None
    if not line or not line.isascii() or not line.isprintable() or " " in line:
        raise ConfigError(f"{path}: not one line that could be a token", hint=wanted)
    return line
