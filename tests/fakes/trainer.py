"""A training without torch: counts, keeps its count in an arena, and obeys the control page.

    python trainer.py --steps 100 [--pause 0.01] [--bytes 4096] [--log FILE] [--die-at STEP] [--fail-at STEP]

Its state is one tensor of 64-bit numbers that all equal the step. It writes a line for each step to the log.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outlive.programs import program
from outlive.staging.arena import Arena, notes_to_fd, read_notes
from outlive.staging.channel import Channel, connect
from outlive.staging.control import ControlPage
from outlive.staging.messages import (
    Accepted,
    ArenaOffer,
    Ended,
    Fresh,
    Hello,
    Reason,
    Refused,
    Restored,
    SnapshotTaken,
    Welcome,
)


class Trainer:
    """One conversation with an agent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.number = 0
        self.step = 0
        self.arenas: dict[int, Arena] = {}
        self.sent_from: dict[int, int] = {0: 0, 1: 0}
        self.signalled = False
        self.die_copying = -1
        self.refused = False

    def start(self, channel: Channel, *, life: int = 0, nonce: str = "") -> None:
        """Say hello, and take what the agent gives."""
        self.channel = channel
        channel.send(
            Hello(pid=os.getpid(), life=life, nonce=nonce, world=int(os.environ.get("WORLD_SIZE", "1")))
        )
        welcome, fds = channel.receive(60)
        if isinstance(welcome, Refused):
            print(f"refused: {welcome.message}", flush=True)
            raise SystemExit(78)
        assert isinstance(welcome, Welcome)
        self.welcome = welcome
        self.page = ControlPage.attach(fds[0])
        if life:
            return
        given, fds = channel.receive(60)
        if isinstance(given, Restored):
            self.arenas[0] = Arena.attach(fds[0], given.bytes)
            notes = read_notes(fds[1], given.table, given.values)
            os.close(fds[1])
            self.step = json.loads(notes.values)["step"]
            content = bytes(self.arenas[0].view)
            assert given.step == self.step
            assert content == self.step.to_bytes(8, "little") * (self.size // 8), "restored something else"
            print(f"restored {self.step} from {given.source}", flush=True)
        else:
            assert isinstance(given, Fresh)
            print("fresh", flush=True)

    def boundary(self, began: float) -> None:
        """One step is done."""
        self.step += 1
        self.page.boundary(
            self.step, now_ns=time.monotonic_ns(), epoch=0, step_ns=int((time.monotonic() - began) * 1e9)
        )

    def due(self) -> "tuple[Reason, bool, int] | None":
        """Reason, stop, and serial of the request that is due."""
        if self.signalled:
            return "signal", True, self.page.serial
        request = self.page.request
        if request is not None and request.serial > self.page.honoured:
            return request.reason, request.stop, request.serial
        if self.page.every_steps and self.step % self.page.every_steps == 0:
            return "interval", False, self.page.honoured
        return None

    def save(self, reason: Reason, *, stop: bool, serial: int) -> bool:
        """Copy the state into a free arena and send it. False if none is free."""
        free = [slot for slot in (0, 1) if self.page.freed(slot) == self.sent_from[slot]]
        slot = free[0] if free and (stop or free[0] == 0) else None
        if slot is None:
            return False
        if slot not in self.arenas:
            self.arenas[slot] = Arena.create(self.size)
            self.channel.send(ArenaOffer(arena=slot, bytes=self.size), [self.arenas[slot].fd])
        self.number += 1
        self.page.begin(slot, self.number)
        if self.step == self.die_copying:
            os.kill(os.getpid(), signal.SIGKILL)
        self.arenas[slot].view[:] = self.step.to_bytes(8, "little") * (self.size // 8)
        self.sent_from[slot] = self.number
        table = json.dumps(
            {
                "format": "outlive/table",
                "version": 1,
                "bytes": self.size,
                "tensors": [
                    {
                        "path": "count",
                        "dtype": "int64",
                        "shape": [self.size // 8],
                        "offset": 0,
                        "bytes": self.size,
                        "device": "cpu",
                        "group": 0,
                    }
                ],
            }
        ).encode()
        values = json.dumps({"step": self.step}).encode()
        notes = notes_to_fd(table, values)
        packet = SnapshotTaken(
            number=self.number,
            arena=slot,
            step=self.step,
            reason=reason,
            bytes=self.size,
            table=len(table),
            values=len(values),
            metrics={"loss": 1 / self.step},
            copy_seconds=0.001,
            stop=stop,
        )
        self.channel.send(packet, [notes])
        os.close(notes)
        self.page.honoured = serial
        return True

    def wait_accepted(self) -> None:
        """Until the last snapshot is safe from our death."""
        while True:
            message = self.channel.receive(30).message
            if isinstance(message, Accepted) and message.number == self.number:
                return

    def superseded(self) -> bool:
        """Whether the agent has refused us meanwhile; also reads what else it said."""
        try:
            while True:
                if isinstance(self.channel.receive(0).message, Refused):
                    return True
        except TimeoutError:
            return False

    def end(self, outcome: str, message: str = "") -> None:
        """The last packet."""
        self.channel.send(Ended(outcome=outcome, step=self.step, message=message))  # type: ignore[arg-type]


def start_sidecar(environ: "dict[str, str]") -> Channel:
    """As a bare ``python train.py`` does."""
    ours, theirs = Channel.pair()
    subprocess.Popen(
        [*program("outlive_agent.sidecar"), "--fd", str(theirs.fileno()), "--", *sys.argv],
        env={**os.environ, **environ},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs._socket.close()  # not close(): that would hang up for the sidecar too
    return ours


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--die-copying", type=int, default=-1)
    options = parser.parse_args()
    trainer = Trainer(options.bytes)
    trainer.die_copying = options.die_copying

    def flag(number: int, frame: object) -> None:
        trainer.signalled = True

    signal.signal(signal.SIGTERM, flag)
    socket = os.environ.get("OUTLIVE_SOCKET")
    trainer.start(connect(socket) if socket else start_sidecar({}))
    while trainer.step < options.steps:
        began = time.monotonic()
        time.sleep(options.pause)
        try:
            code = one_step(trainer, options, began)
        except EOFError:
            code = survive(trainer)
        if code is not None:
            return code
    try:
        trainer.save("finished", stop=True, serial=trainer.page.serial)
        trainer.wait_accepted()
        trainer.end("finished")
    except EOFError:
        return survive(trainer)
    return 0


def one_step(trainer: Trainer, options: argparse.Namespace, began: float) -> "int | None":
    """Train one step and do what is due; the exit code if that is the end."""
    trainer.boundary(began)
    if options.log:
        with options.log.open("a") as log:
            log.write(f"{trainer.step}\n")
    if trainer.superseded():
        return 76
    due = trainer.due()
    if due is not None:
        reason, stop, serial = due
        saved = trainer.save(reason, stop=stop, serial=serial)
        if saved:
            trainer.wait_accepted()
        if saved and stop:
            trainer.end("stopped")
            return 75
    if trainer.step == options.die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if trainer.step == options.fail_at:
        trainer.end("exception", "ValueError: a bad batch")
        return 1
    return None


def survive(trainer: Trainer) -> int:
    """The agent died: hand the last state to a new one for the same life, and stop."""
    welcome = trainer.welcome
    heir = Trainer(trainer.size)
    heir.step = trainer.step
    channel = start_sidecar(
        {
            "OUTLIVE_RUN": welcome.run,
            "OUTLIVE_STORE": welcome.store,
            "OUTLIVE_LIFE": str(welcome.life),
            "OUTLIVE_NONCE": welcome.nonce,
        }
    )
    heir.start(channel, life=welcome.life, nonce=welcome.nonce)
    heir.page.boundary(heir.step, now_ns=time.monotonic_ns(), epoch=0, step_ns=1)
    heir.save("signal", stop=True, serial=0)
    heir.wait_accepted()
    heir.end("stopped")
    return 75


if __name__ == "__main__":
    sys.exit(main())
