"""The configuration: argument over environment over file over default; wrong settings are told all at once.

Reading it touches nothing but the file. Secrets are never in it, only where to find them.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.errors import ConfigError
from outlive_agent.settings.checks import Problems, Section
from outlive_agent.settings.layers import Layers
from outlive_agent.settings.naming import run_name_for
from outlive_agent.settings.reading import COMMAND, HOOKS, read_config, read_store
from outlive_agent.settings.text import read_text
from outlive_agent.settings.values import (
    PROVIDERS,
    Config,
    CredentialsFrom,
    Every,
    ReclaimSettings,
    SaveSettings,
    StoreSettings,
    TrainingSettings,
)

if TYPE_CHECKING:
    import threading

    from outlive.objects.interface import ObjectStore
    from outlive.objects.retry import Retry

DEFAULT_PATH = Path("/etc/outlive/outlive.yaml")
DEFAULT_ORIGIN = "the default"

_FLAGS: dict[str, tuple[str, ...]] = {
    "run": ("run",),
    "store": ("store", "location"),
    "endpoint": ("store", "endpoint"),
    "region": ("store", "region"),
    "every": ("save", "every"),
    "keep": ("save", "keep", "last"),
    "restarts": ("training", "restarts"),
    "stop_grace": ("training", "stop_grace"),
    "on_notice": ("hooks", "on_notice"),
    "on_saved": ("hooks", "on_saved"),
    "on_end": ("hooks", "on_end"),
}
"""What ``add_exec_options`` in cli/options.py adds, and where each flag's value goes."""
_ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "OUTLIVE_RUN": ("run",),
    "OUTLIVE_STORE": ("store", "location"),
    "OUTLIVE_S3_ENDPOINT": ("store", "endpoint"),
    "OUTLIVE_S3_REGION": ("store", "region"),
    "OUTLIVE_EVERY": ("save", "every"),
    "OUTLIVE_PROVIDER": ("reclaim", "provider"),
    "OUTLIVE_METADATA_ENDPOINT": ("reclaim", "endpoint"),
}


def load(path: Path) -> Config:
    """The configuration in this file. ``ConfigError`` with everything that is wrong in it."""
    layers = Layers()
    problems = _put_file(layers, path)
    config = read_config(layers.content, problems)
    problems.raise_any(str(path))
    return config


def for_exec(args: Namespace, environ: Mapping[str, str]) -> Config:
    """The configuration of ``outlive exec``: flags over environment over ``--config`` or $OUTLIVE_CONFIG.

    ``args`` has ``command`` and whichever flags there are. /etc/outlive/outlive.yaml counts only when it is
    named: what someone starts by hand must not claim the next life of the machine's own run.
    """
    layers = Layers()
    file = getattr(args, "config", None) or environ.get("OUTLIVE_CONFIG")
    problems = _put_file(layers, Path(file)) if file else Problems(layers.origins)
    _put_above(layers, args, environ)
    if args.command:
        layers.put_value(("training", "command"), list(args.command), "the command")
    _put_defaults(layers, environ)
    config = read_config(layers.content, problems)
    problems.raise_any(str(file) if file else "outlive exec")
    return config


def for_doctor(args: Namespace, environ: Mapping[str, str]) -> tuple[Config, str]:
    """The configuration that an agent would have here, and the run's name; empty if none is named.

    As :func:`for_exec`, but the machine's own file counts if it is there, and nothing need be given.
    """
    layers = Layers()
    file = args.config or environ.get("OUTLIVE_CONFIG") or (DEFAULT_PATH if DEFAULT_PATH.is_file() else None)
    problems = _put_file(layers, Path(file)) if file else Problems(layers.origins)
    _put_above(layers, args, environ)
    _put_defaults(layers, environ)
    named = "run" in layers.content
    if not named:
        layers.put_value(("run",), "unnamed", DEFAULT_ORIGIN)
    config = read_config(layers.content, problems)
    problems.raise_any(str(file) if file else "outlive doctor")
    return config, config.run if named else ""


def for_reading(
    store: str | None,
    config: str | None,
    environ: Mapping[str, str],
    *,
    endpoint: str | None = None,
    region: str | None = None,
) -> StoreSettings:
    """The store that ``ls`` and the other reading verbs look into.

    The argument, else $OUTLIVE_STORE, else the configuration file (``--config``, $OUTLIVE_CONFIG, or the
    machine's if it is there), else the local default. Of a file only the store is checked: a wrong hook must
    keep nobody from seeing what is saved. But where it has no ``store`` all of it is, as a misspelled name
    must not mean the default.
    """
    layers = Layers()
    file = config or environ.get("OUTLIVE_CONFIG") or (str(DEFAULT_PATH) if DEFAULT_PATH.is_file() else None)
    given = store or environ.get("OUTLIVE_STORE")
    read = file if config or not given else None  # what nobody asked for can't be wrong
    problems = _put_file(layers, Path(read), section="store") if read else Problems(layers.origins)
    if read and "store" not in layers.content:
        _check_rest(layers, problems)
    for name, path in _ENVIRONMENT.items():
        if path[0] == "store":
            layers.put_value(path, _absolute(path, environ.get(name) or None), f"${name}")
    layers.put_value(("store", "location"), _absolute(("store", "location"), store), "--store")
    layers.put_value(("store", "endpoint"), endpoint, "--endpoint")
    layers.put_value(("store", "region"), region, "--region")
    _put_defaults(layers, environ)
    settings = read_store(Section(layers.content, (), problems).section("store"), problems)
    problems.raise_any(read or "the store")
    return settings


def open_configured_store(
    settings: Config | StoreSettings,
    environ: Mapping[str, str],
    *,
    on_retry: "Callable[[Retry], None] | None" = None,
    closing: "threading.Event | None" = None,
) -> "ObjectStore":
    """The object store, with its credentials. ``ConfigError`` where they can't be had.

    For an agent (a ``Config``) the place of the local default is made: a new account has none. Any
    other directory that is missing may be a disk that isn't mounted.
    """
    from outlive.objects.location import open_store  # late: boto3 costs a third of a second and 30 MB
    from outlive.objects.sealed import Sealed
    from outlive_agent.settings.credentials import credentials_for, seal_for

    store = settings.store if isinstance(settings, Config) else settings
    if isinstance(settings, Config) and store.origin == DEFAULT_ORIGIN:
        _make_above(Path(store.location))
    opened = open_store(
        store.location,
        credentials=credentials_for(store, environ),
        endpoint=store.endpoint,
        region=store.region,
        ca_bundle=None if store.ca_bundle is None else str(store.ca_bundle),
        on_retry=on_retry,
        closing=closing,
    )
    seal = seal_for(store, environ)
    return opened if seal is None else Sealed(opened, seal)


def default_location(environ: Mapping[str, str]) -> str:
    """The local directory that is the store where nobody names one."""
    base = environ.get("XDG_DATA_HOME") or ""
    root = (
        Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".local" / "share"
    )
    return str(root / "outlive")


def _make_above(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: {(error.strerror or str(error)).lower()}", hint="name another place with --store"
        ) from None


def _put_file(layers: Layers, path: Path, *, section: str | None = None) -> Problems:
    from outlive_agent.settings.document import parse  # late: without a file nobody needs a YAML parser

    text = read_text(path, otherwise="give another with --config", what="configuration")
    document = parse(text, name=str(path), verbatim=frozenset({COMMAND, *HOOKS}))
    problems = Problems(layers.origins)
    if isinstance(document.content, Mapping):
        layers.put(document.content, {place: f"line {line}" for place, line in document.lines.items()})
    else:
        raise ConfigError(
            f"{path}: no settings in it", hint="it needs at least 'run:' and 'store:' with a 'location:'"
        )
    for repeated in document.repeated:
        if section is None or repeated[0] == section:
            problems.add(repeated, "given twice")
    return problems


def _put_above(layers: Layers, args: Namespace, environ: Mapping[str, str]) -> None:
    """The environment over the file, the flags over both."""
    for name, path in _ENVIRONMENT.items():
        layers.put_value(path, _absolute(path, environ.get(name) or None), f"${name}")
    for name, path in _FLAGS.items():
        layers.put_value(path, _absolute(path, getattr(args, name, None)), f"--{name.replace('_', '-')}")


def _put_defaults(layers: Layers, environ: Mapping[str, str]) -> None:
    training = layers.content.get("training")
    if "store" not in layers.content:  # who speaks of a store means one: without a location that is a mistake
        layers.put_value(("store", "location"), default_location(environ), DEFAULT_ORIGIN)
    if (
        "run" not in layers.content
        and isinstance(training, Mapping)
        and isinstance(training.get("command"), list)
    ):
        layers.put_value(("run",), run_name_for(training["command"], Path.cwd()), "the command")


def _check_rest(layers: Layers, problems: Problems) -> None:
    """All but the store that a file has not, and the run's name, which need not be there to read."""
    stand_ins = {"run": "unnamed", "store": {"location": "/"}}
    read_config({**stand_ins, **layers.content}, problems)


def _absolute(path: tuple[str, ...], value: object) -> object:
    """A relative location means the directory it was typed in; children may run elsewhere."""
    if path == ("store", "location") and isinstance(value, str) and value.strip() and "://" not in value:
        return str(Path.cwd() / Path(value).expanduser())
    return value


__all__ = [
    "DEFAULT_PATH",
    "PROVIDERS",
    "Config",
    "CredentialsFrom",
    "Every",
    "ReclaimSettings",
    "SaveSettings",
    "StoreSettings",
    "TrainingSettings",
    "default_location",
    "for_exec",
    "for_reading",
    "load",
    "open_configured_store",
]
