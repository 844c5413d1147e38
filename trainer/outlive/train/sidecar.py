"""Finds the agent of this process, or starts one of its own (docs/PROTOCOL.md, "Starting a sidecar")."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from outlive.programs import program
from outlive.staging.channel import Channel, connect
from outlive.staging.messages import Welcome
from outlive.train.link import Given, Link, RefusedError, Stopped
from outlive.train.ranks import Ranks

ATTACH_SECONDS = 10.0
"""How long an agent that is being started may take until it listens."""
RETURN_SECONDS = 10.0
"""How long one that systemd replaces may take, where the training must stop now."""
_LOOK_SECONDS = 0.1


def attach_agent(
    settings: Mapping[str, str],
    *,
    ranks: Ranks | None = None,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> tuple[Link, Given | None]:
    """The agent of $OUTLIVE_SOCKET if one listens there, else a sidecar with `settings` in its environment.

    Where nothing says where the run is kept, only that agent knows: a sidecar would begin another run here,
    on a disk that goes with the machine. So it is waited for then, and ``RefusedError`` if it does not come.
    """
    link = _listening()
    if link is None and os.environ.get("OUTLIVE_SOCKET") and not _place_known(settings):
        link = _awaited(ATTACH_SECONDS, stopped=stopped)
        if link is None:
            raise RefusedError(
                f"no agent listens on {os.environ['OUTLIVE_SOCKET']}",
                hint="journalctl -u outlive-agent says why; to begin again: systemctl restart outlive-agent",
            )
    link = link or start_sidecar(settings)
    try:
        return link, link.open(ranks=ranks, stopped=stopped, say=say)
    except BaseException:
        link.close()
        raise


def succeed_agent(
    welcome: Welcome, *, ranks: Ranks | None = None, at_once: bool, say: Callable[[str], None]
) -> Link:
    """Another agent for the life that `welcome` named, after its own has died.

    A daemon comes back by itself, and alone has the keys: `at_once` waits for it. ``EOFError``: not yet.
    """
    link = _listening() if welcome.mode == "daemon" else None
    if link is None and welcome.mode == "daemon":
        link = _awaited(RETURN_SECONDS) if at_once else None
        if link is None:
            raise EOFError("the agent is not back yet")
    if link is None:
        life = {"OUTLIVE_LIFE": str(welcome.life), "OUTLIVE_NONCE": welcome.nonce}
        link = start_sidecar({"OUTLIVE_RUN": welcome.run, "OUTLIVE_STORE": welcome.store, **life})
    try:
        link.open(of=(welcome.life, welcome.nonce), ranks=ranks, say=say)
    except BaseException:
        link.close()
        raise
    return link


def start_sidecar(settings: Mapping[str, str]) -> Link:
    """A sidecar of this process, in a session of its own so that Ctrl-C does not reach it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [*program("outlive_agent.sidecar"), "--fd", str(theirs.fileno()), "--"]
        process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, *_own_command()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **settings},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Link(Channel(ours), process)


def let_go(sidecar: "subprocess.Popen[bytes] | None", *, seconds: float) -> None:
    """Collect a sidecar that ends soon, and leave one alone that still has something to finish."""
    if sidecar is None:
        return
    try:
        sidecar.wait(seconds)
    except subprocess.TimeoutExpired:
        sidecar.returncode = 0  # it outlives us on purpose; else Python warns of a process left behind


def _own_command() -> list[str]:
    """How this process was started; a notebook's kernel is called after the notebook, where that is known."""
    if "ipykernel" not in sys.modules:
        return sys.orig_argv
    name = os.environ.get("JPY_SESSION_NAME") or "notebook.ipynb"
    return ["jupyter", name if name.endswith(".ipynb") else f"{name}.ipynb"]


def _place_known(settings: Mapping[str, str]) -> bool:
    return any(os.environ.get(name) or settings.get(name) for name in ("OUTLIVE_STORE", "OUTLIVE_CONFIG"))


def _awaited(seconds: float, *, stopped: Callable[[], bool] = lambda: False) -> Link | None:
    """The agent, if it listens (again) within so many seconds."""
    deadline = time.monotonic() + seconds
    while (link := _listening()) is None and time.monotonic() < deadline:
        if stopped():
            raise Stopped
        time.sleep(_LOOK_SECONDS)
    return link


def _listening() -> Link | None:
    path = os.environ.get("OUTLIVE_SOCKET")
    if not path:
        return None
    try:
        return Link(connect(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
