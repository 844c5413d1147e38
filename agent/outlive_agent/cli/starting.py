"""Puts a guard together, the same for all three ways to start one, from a checked configuration."""

import os
import pwd
import shutil
import signal
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from outlive.errors import ConfigError
from outlive.staging.channel import Channel
from outlive.store.lives import Identity, Life
from outlive_agent import config as configuration
from outlive_agent.beginning import Beginning
from outlive_agent.config import Config
from outlive_agent.drain import stop_window
from outlive_agent.events import Events, Faulted, Post, Signalled
from outlive_agent.exits import Exit
from outlive_agent.fdstore import FdStore, inherited
from outlive_agent.guard import Guard
from outlive_agent.job import Job, Place
from outlive_agent.journal import Journal
from outlive_agent.kept import KeptLife
from outlive_agent.kept_memory import KeptMemory
from outlive_agent.left import Owner
from outlive_agent.listening import Door, read
from outlive_agent.neighbours import refuse_second
from outlive_agent.notify import Notify
from outlive_agent.patience import Patience
from outlive_agent.remembered import boot_id
from outlive_agent.runtime import DrainLock, prepare, socket_in
from outlive_agent.settings.values import HookSettings
from outlive_agent.status import runtime_root
from outlive_agent.supervise.child import Child
from outlive_agent.supervise.interface import Supervisor
from outlive_agent.supervise.unit import Parent, Unit

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_TRAINING_USER = "train"


def guard_command(
    config: Config, *, rewind: int | None, restarts: int, config_file: str | None, named: bool
) -> Exit:
    """``outlive exec``: the command is our child. ``named``: somebody chose the run's name."""
    environ = dict(os.environ)
    root = runtime_root(environ)
    socket = socket_in(root / f"exec-{os.getpid()}")
    directory = prepare(root, name=socket.parent.name)
    command = config.training.command if config.training is not None else ()
    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}", hint="check the command after '--'")
    job = _job(config, command=command, rewind=rewind, restarts=restarts, named=named)
    try:
        refuse_second(root, job.location, run=job.run)
    except ConfigError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    place = _place(job, config, root=root, directory=directory)
    events: Events = SimpleQueue()
    door = Door(socket, uids={os.getuid()}, post=events.put, journal=place.journal)
    added = _child_environ(config, socket, config_file)
    supervisor = Child(command, post=events.put, environ={**environ, **added})
    return _guard(job, place, supervisor=supervisor, events=events, close=door.close)


def guard_unit(config: Config) -> Exit:
    """``outlive agent``: systemd runs the training beside us."""
    fds = inherited(os.environ)
    environ = dict(os.environ)
    own = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    root = Path(own) if own else runtime_root(environ)
    socket = socket_in(root if own else root / f"daemon-{os.getpid()}")
    directory = root if own else prepare(root, name=socket.parent.name)
    training = config.training
    kept = KeptLife(directory, config.store.location, run=config.run)
    command = training.command if training is not None else ()
    job = _job(config, command=command, patient=True)
    place = _place(job, config, root=root, directory=directory)
    owner = Owner(store=job.location, run=job.run, boot=boot_id())
    memory = KeptMemory(FdStore(place.notify, names=set(fds)), owner, journal=place.journal)
    job = replace(job, taken_over=memory.take_up(fds, life=kept.read()))
    place = replace(place, kept=kept, memory=memory)
    events: Events = SimpleQueue()
    uids = {os.getuid(), *_uid_of(training.user if training is not None else None)}
    # The directory decides who reaches the socket, and the door who may speak: the training is another user.
    door = Door(socket, uids=uids, post=events.put, journal=place.journal, mode=0o660)
    if not own:
        place.journal.info(f"listening on {socket}: start the training with OUTLIVE_SOCKET={socket}")
    code = _guard(job, place, supervisor=Unit(), events=events, close=door.close)
    # Not after a fault of ours, nor while memory holds what could not be saved: the next agent goes on then.
    if memory.empty:
        kept.forget()
    return code


def guard_parent(channel: Channel, *, command: tuple[str, ...], taken_over: Life | None) -> Exit:
    """The sidecar of a bare ``python train.py``, at the other end of ``channel``."""
    environ = dict(os.environ)
    config = configuration.for_exec(Namespace(command=list(command)), environ)
    root = runtime_root(environ)
    directory = prepare(root, name=f"sidecar-{os.getpid()}")
    named = bool(environ.get("OUTLIVE_RUN") or environ.get("OUTLIVE_CONFIG"))
    job = _job(config, command=command, taken_over=taken_over, named=named)
    place = _place(job, config, root=root, directory=directory)
    events: Events = SimpleQueue()
    read(channel, events.put)
    return _guard(job, place, supervisor=Parent(), events=events, close=channel.close)


def _guard(
    job: Job, place: Place, *, supervisor: Supervisor, events: Events, close: Callable[[], None]
) -> Exit:
    identity = Identity.here(job.command)
    beginning = Beginning(job, place, post=events.put, identity=identity)
    guard = Guard(job, place, supervisor=supervisor, events=events, beginning=beginning)
    _listen_to_signals(events.put)
    threading.excepthook = lambda fault: events.put(_faulted(fault))
    try:
        return guard.run()
    finally:
        close()
        place.notify.close()
        if place.directory.name.endswith(str(os.getpid())):
            shutil.rmtree(place.directory, ignore_errors=True)


def _faulted(fault: threading.ExceptHookArgs) -> Faulted:
    name = fault.thread.name if fault.thread is not None else "unknown"
    return Faulted(thread=name, error=fault.exc_value or fault.exc_type())


def _job(
    config: Config,
    *,
    command: Sequence[str],
    rewind: int | None = None,
    restarts: int = 0,
    named: bool = True,
    taken_over: Life | None = None,
    patient: bool = False,
) -> Job:
    training = config.training
    return Job(
        run=config.run,
        location=config.store.location,
        place=f"{config.store.location} at {_endpoint(config, os.environ)}",
        command=tuple(command),
        every=config.save.every,
        keep=config.save.keep,
        stop_grace_seconds=training.stop_grace.total_seconds() if training is not None else 30.0,
        restarts=restarts,
        stop_window_seconds=stop_window(os.environ),
        named=named,
        rewind=rewind,
        taken_over=taken_over,
        patient=patient,
        reclaim=config.reclaim,
        hooks=_hooks(config),
    )


def _hooks(config: Config) -> HookSettings:
    """The variables that hold the keys of the store are not for hooks."""
    source = config.store.credentials
    return replace(config.hooks, withheld=(source.env if source is not None else None) or ())


def _place(job: Job, config: Config, *, root: Path, directory: Path) -> Place:
    environ = dict(os.environ)
    journal = Journal.standard(environ)
    journal.about(run=job.run)
    closing = threading.Event()
    store = configuration.open_configured_store(config, environ, on_retry=Patience(journal), closing=closing)
    return Place(
        store=store,
        closing=closing,
        directory=directory,
        lock=DrainLock(root, job.location, run=job.run),
        journal=journal,
        notify=Notify(environ),
    )


def _child_environ(config: Config, socket: Path, config_file: str | None) -> Mapping[str, str]:
    """What the training needs to find us, and to start a sidecar for its last save if we are killed."""
    store = config.store
    given = {
        "OUTLIVE_SOCKET": str(socket),
        "OUTLIVE_RUN": config.run,
        "OUTLIVE_STORE": store.location,
        "OUTLIVE_S3_ENDPOINT": store.endpoint,
        "OUTLIVE_S3_REGION": store.region,
        "OUTLIVE_CONFIG": None if config_file is None else str(Path(config_file).absolute()),
    }
    return {name: value for name, value in given.items() if value is not None}


def _endpoint(config: Config, environ: Mapping[str, str]) -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return config.store.endpoint or next((environ[name] for name in names if environ.get(name)), "")


def _listen_to_signals(post: Post) -> None:
    def tell(number: int, frame: FrameType | None) -> None:
        post(Signalled(number=number))

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, tell)


def _uid_of(user: str | None) -> set[int]:
    with suppress(KeyError):
        return {pwd.getpwnam(user or _TRAINING_USER).pw_uid}
    return set()
