"""What can happen to a guard. Threads that do I/O post these; one thread decides."""

from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from outlive.errors import OutliveError
from outlive.staging.channel import Channel, Received
from outlive.staging.messages import Hello
from outlive_agent.held import Held
from outlive_agent.notice import Notice, Withdrawn

if TYPE_CHECKING:
    from outlive.store.commit import Committed
    from outlive.store.lives import Life
    from outlive.store.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeClaimed:
    """The life is ours; what to resume from is being chosen."""

    life: "Life"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReady:
    """What the trainer resumes from lies in memory; None where there is nothing to resume from.

    ``left``: the agent before this one left it there.
    """

    held: Held | None
    parent: "Manifest | None"
    seconds: float
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginFailed:
    """No life could be claimed, or nothing restored."""

    error: OutliveError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCame:
    """A trainer that may connect said hello."""

    channel: Channel
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketCame:
    """The trainer said something more."""

    channel: Channel
    received: Received


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerGone:
    """The trainer closed its end, died, or (``error``) spoke nonsense."""

    channel: Channel
    error: OutliveError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildExited:
    """The command ended. As in ``subprocess``: a negative code is the signal that killed it."""

    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled:
    """This process got a signal."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Somebody announced a reclaim."""

    notice: Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledOff:
    """A reclaim that was announced will not come."""

    withdrawn: Withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A snapshot is a checkpoint."""

    held: Held
    committed: "Committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadFailed:
    """A snapshot did not become a checkpoint; ``error`` is None if we dropped it for a newer one."""

    held: Held
    error: OutliveError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededSeen:
    """A newer life of the run exists."""

    error: OutliveError


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """One of the agent's own threads died of something nobody expected."""

    thread: str
    error: BaseException


Event: TypeAlias = (
    LifeClaimed
    | StateReady
    | BeginFailed
    | TrainerCame
    | PacketCame
    | TrainerGone
    | ChildExited
    | Signalled
    | Noticed
    | CalledOff
    | Uploaded
    | UploadFailed
    | SupersededSeen
    | Faulted
)
Events: TypeAlias = "SimpleQueue[Event]"
"""A SimpleQueue: its ``put`` may be called from a signal handler that interrupted its ``get``."""
Post: TypeAlias = Callable[[Event], None]
"""Hands an event to the deciding thread; never blocks."""
