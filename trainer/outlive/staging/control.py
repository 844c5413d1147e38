"""The control page: shared words, so that asking for a save costs the training loop one read of memory."""

import mmap
import os
import threading
from dataclasses import dataclass

from outlive.errors import ProtocolError
from outlive.staging import memory
from outlive.staging.messages import REASONS, Reason

PAGE_BYTES = 4096
LAYOUT = 1
ARENAS = 2

NO_STEPS = (1 << 64) - 1
"""As an interval in steps: none for now, not even the script's own."""

# Words that the agent writes.
W_LAYOUT, W_SERIAL, W_REASON, W_STOP, W_DEADLINE, W_EVERY_STEPS, W_COMMITTED = 0, 1, 2, 3, 4, 5, 6
W_FREED = 8
# Words that the trainer writes.
W_STEP, W_BOUNDARY, W_EPOCH, W_STEP_NS, W_COPY_NS, W_HONOURED = 16, 17, 18, 19, 20, 21
W_BEGUN = 22
W_STALL_NS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the agent wants at the next boundary. ``deadline_ns`` is on CLOCK_MONOTONIC; 0 means none."""

    serial: int
    reason: Reason
    stop: bool
    deadline_ns: int


class ControlPage:
    """Both sides' view of the page. ``words`` is the page itself, for a loop that must not pay for a call."""

    def __init__(self, fd: int) -> None:
        """Takes ``fd`` over. Use :meth:`create` or :meth:`attach`."""
        self.fd = fd
        self._map: mmap.mmap = memory.map_file(fd, PAGE_BYTES, writable=True)
        self._bytes = memoryview(self._map)
        self.words: memoryview[int] = self._bytes.cast("Q")
        self._fence = threading.Lock()

    @classmethod
    def create(cls) -> "ControlPage":
        """A new page, for one trainer."""
        page = cls(memory.create("outlive-control", PAGE_BYTES))
        page.words[W_LAYOUT] = LAYOUT
        return page

    @classmethod
    def attach(cls, fd: int) -> "ControlPage":
        """The other side's page. Takes ``fd`` over, also where ``ProtocolError`` refuses it."""
        try:
            memory.check(fd, PAGE_BYTES)
            page = cls(fd)
        except (ProtocolError, OSError):
            os.close(fd)
            raise
        if page.words[W_LAYOUT] != LAYOUT:
            layout = page.words[W_LAYOUT]
            page.close()
            raise ProtocolError(
                f"the control page has layout {layout}, this version knows {LAYOUT}",
                hint="install the same version of outlive for the agent and for the training",
            )
        return page

    def close(self) -> None:
        """Unmap and close. Both may be called twice."""
        if self.fd < 0:
            return
        self.words.release()
        self._bytes.release()
        self._map.close()
        os.close(self.fd)
        self.fd = -1

    # -- the agent's words

    def ask(self, reason: Reason, *, stop: bool = False, deadline_ns: int = 0) -> int:
        """Ask for a snapshot at the next boundary; returns the serial. Replaces an older request."""
        serial = self.words[W_SERIAL] + 1
        self.words[W_REASON] = REASONS.index(reason)
        self.words[W_STOP] = int(stop)
        self.words[W_DEADLINE] = deadline_ns
        self._order()
        self.words[W_SERIAL] = serial
        return serial

    @property
    def serial(self) -> int:
        """Serial of the newest request; 0 before the first."""
        return self.words[W_SERIAL]

    @property
    def request(self) -> Request | None:
        """The newest request, honoured or not; None before the first."""
        while True:
            serial = self.words[W_SERIAL]
            if serial == 0:
                return None
            self._order()
            reason, stop, deadline = self.words[W_REASON], self.words[W_STOP], self.words[W_DEADLINE]
            self._order()
            if serial == self.words[W_SERIAL]:  # else a newer request was being written while we read
                name = REASONS[reason] if reason < len(REASONS) else "hand"
                return Request(serial=serial, reason=name, stop=bool(stop), deadline_ns=deadline)

    @property
    def every_steps(self) -> int:
        """Save whenever the step is a multiple of this; 0 = no such interval; ``NO_STEPS`` = not now."""
        return self.words[W_EVERY_STEPS]

    @every_steps.setter
    def every_steps(self, steps: int) -> None:
        self.words[W_EVERY_STEPS] = steps

    @property
    def committed_step(self) -> int | None:
        """The step of this life's last checkpoint."""
        return _less_one(self.words[W_COMMITTED])

    @committed_step.setter
    def committed_step(self, step: int) -> None:
        self.words[W_COMMITTED] = step + 1

    def freed(self, arena: int) -> int:
        """Number of the last snapshot in ``arena`` (0 or 1) that the agent is done with."""
        return self.words[W_FREED + arena]

    def free(self, arena: int, number: int) -> None:
        """The agent is done with snapshot ``number``: the arena is the trainer's again."""
        self.words[W_FREED + arena] = number

    # -- the trainer's words

    def boundary(self, step: int, *, now_ns: int, epoch: int | None, step_ns: int) -> None:
        """The trainer stands at a boundary."""
        words = self.words
        words[W_STEP] = step
        words[W_BOUNDARY] = now_ns
        words[W_EPOCH] = 0 if epoch is None else epoch + 1
        words[W_STEP_NS] = step_ns

    @property
    def step(self) -> int:
        """The step of the last boundary."""
        return self.words[W_STEP]

    @property
    def boundary_ns(self) -> int:
        """When the last boundary was, on CLOCK_MONOTONIC; 0 before the first."""
        return self.words[W_BOUNDARY]

    @property
    def epoch(self) -> int | None:
        """The training loop's epoch at the last boundary, if it told one."""
        return _less_one(self.words[W_EPOCH])

    @property
    def step_ns(self) -> int:
        """Mean time of a step; 0 = not measured yet."""
        return self.words[W_STEP_NS]

    @property
    def copy_ns(self) -> int:
        """Time that the last copy into an arena took; 0 = none yet."""
        return self.words[W_COPY_NS]

    @copy_ns.setter
    def copy_ns(self, nanoseconds: int) -> None:
        self.words[W_COPY_NS] = nanoseconds

    @property
    def stall_ns(self) -> int:
        """Time that the training lost by the last snapshot; 0 = none yet."""
        return self.words[W_STALL_NS]

    @stall_ns.setter
    def stall_ns(self, nanoseconds: int) -> None:
        self.words[W_STALL_NS] = nanoseconds

    @property
    def honoured(self) -> int:
        """Serial of the last request whose snapshot was taken."""
        return self.words[W_HONOURED]

    @honoured.setter
    def honoured(self, serial: int) -> None:
        self.words[W_HONOURED] = serial

    def begun(self, arena: int) -> int:
        """Number of the newest snapshot whose copying into ``arena`` has begun."""
        return self.words[W_BEGUN + arena]

    def begin(self, arena: int, number: int) -> None:
        """The trainer is about to copy snapshot ``number`` into ``arena``: what it held is lost."""
        self.words[W_BEGUN + arena] = number
        self._order()

    def _order(self) -> None:
        # Taking a lock is a memory barrier: without one, a machine with weak ordering (ARM) may show the
        # other process a new serial beside an old reason.
        with self._fence:
            pass


def _less_one(word: int) -> int | None:
    return word - 1 if word else None
