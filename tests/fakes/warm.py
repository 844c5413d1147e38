"""Python with torch loaded already, for tests that start many trainings: each is a fork, not a start.

``python warm.py serve SOCKET`` waits; ``python warm.py run SOCKET SCRIPT ARGUMENTS`` runs a script as
``python SCRIPT ARGUMENTS`` would, with its own environment, directory, output and chance, and its exit code.
The script dies with whoever asked for it, as with the server: a SIGKILL to that one reaches it, too.
"""

import array
import ctypes
import fcntl
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

KILLED = 137
F_SETSIG = 10
"""Of fcntl; Python has no name for it."""


def serve(path: str) -> "tuple[list[str], socket.socket]":
    """Fork at every request, and return in the child only."""
    for module in (
        "torch",
        "torch._dynamo",
        "torch.distributed.run",
        "outlive.train.rehearsal",
        "outlive.train.run",
    ):
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen()
        Path(f"{path}.new").rename(path)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                return _child(connection), connection
            connection.close()


def _child(connection: socket.socket) -> "list[str]":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    random.seed()
    importlib.import_module("numpy").random.seed()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length = int.from_bytes(connection.recv(4), "big")
    fds = array.array("i")
    text, ancillary, _, _ = connection.recvmsg(length, socket.CMSG_LEN(3 * fds.itemsize), socket.MSG_WAITALL)
    fds.frombytes(ancillary[0][2])
    asked = json.loads(text)
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
        os.close(fd)
    # From here on nothing comes on this line but its end, which the kernel answers with a SIGKILL to us.
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return list(asked["command"])


def run(path: str, command: "list[str]") -> int:
    """Have it run; its exit code."""
    asked = {"command": command, "directory": str(Path.cwd()), "environment": dict(os.environ)}
    text = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.send(len(text).to_bytes(4, "big"))
        sent = connection.sendmsg(
            [text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
        )
        connection.sendall(text[sent:])
        answer = connection.recv(1)
    return answer[0] if answer else KILLED


if __name__ == "__main__":
    if sys.argv[1] == "run":
        os._exit(run(sys.argv[2], sys.argv[3:]))
    sys.argv, line = serve(sys.argv[2])
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    line.send(bytes([code if isinstance(code, int) else 0 if code is None else 1]))
    os._exit(0)
