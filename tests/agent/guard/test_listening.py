"""The agent's socket, when the machine is short of what it takes."""

import io
import os
import resource
import socket
import tempfile
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fakes.agents import wait_until
from outlive_agent.events import TrainerGone
from outlive_agent.journal import Journal
from outlive_agent.listening import Door


def test_a_training_that_can_not_be_let_in_waits_and_is_one_line() -> None:
    """Without a descriptor to spare the agent neither spins nor fills the journal; with one it goes on."""
    stream, events = io.StringIO(), SimpleQueue[Any]()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory(prefix="ol-") as folder:
        path = Path(folder) / "agent"
        door = Door(path, uids={os.getuid()}, post=events.put, journal=Journal(stream))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as training:
            spare = os.dup(training.fileno())
            os.close(spare)
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
            try:
                training.connect(str(path))
                wait_until(lambda: "trying again" in stream.getvalue(), what="it is told")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            training.send(b"no hello")
            gone = events.get(timeout=60)
            assert isinstance(gone, TrainerGone)
            gone.channel.close()
        door.close()
    assert stream.getvalue().count("\n") == 1
