"""What a process with an S3 store costs, and what happens when it forks."""

import os
import subprocess
import sys

from fakes.servers import Server, shared

BEGIN = """
import ctypes, os, resource, sys, threading
from outlive.objects.location import open_store
retries = []
store = open_store(sys.argv[1], on_retry=retries.append)
"""


def run(program: str, server: Server, prefix: str) -> str:
    """What the program prints, which has ``store`` open."""
    environment = {**os.environ, **server.environment(), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", BEGIN + program, server.location(prefix)]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.stderr == ""
    assert result.returncode == 0
    return result.stdout


def test_a_forked_child_has_its_own_connections() -> None:
    """After a fork parent and child use the same store at once, over TLS, and each gets its own answers."""
    program = """
for number in range(20):
    store.put(f"{number}", bytes([number]) * 100_000)
child = os.fork()
wrong = 0
for number in range(60):
    body = store.get(f"{number % 20}", at_most=100_000)
    wrong += body != bytes([number % 20]) * 100_000
wrong += len(retries)
if not child:
    os._exit(wrong)
print(wrong, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program, shared("rgw"), "fork") == "0 0\n"


def test_bulk_is_not_copied() -> None:
    """Putting and reading 32 MiB over TLS needs less than 4 MiB beside the caller's own memory."""
    program = """
image = memoryview(bytearray(64 << 20))
for page in range(0, len(image), 4096):
    image[page] = page // 4096 % 251
store.put("warm", image[: 2 << 20])
store.read_into("warm", image[: 2 << 20])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store.put("chunk", image[: 32 << 20])
store.read_into("chunk", image[32 << 20 :])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(image[: 32 << 20] == image[32 << 20 :], grown < 4096, grown)
"""
    assert run(program, shared("rgw"), "copy").startswith("True True")


def test_an_open_store_is_small() -> None:
    """A process that has used a store over TLS is resident with less than 56 MB."""
    program = """
store.put("a", b"x")
list(store.list(""))
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[1])
print(pages * resource.getpagesize() < 56_000_000, pages * resource.getpagesize())
"""
    assert run(program, shared("rgw"), "small").startswith("True")


def test_an_idle_store_has_no_thread() -> None:
    """The watchdog watches requests and goes away with the last one."""
    program = """
from outlive.objects.s3 import watchdog
watchdog._LINGER_SECONDS = 0.1
store.put("a", b"x")
watching = [thread for thread in threading.enumerate() if "watchdog" in thread.name]
for thread in watching:
    thread.join(30)
print(len(watching), threading.active_count())
store.put("b", b"x")
print(store.get("b", at_most=1))
"""
    assert run(program, shared("moto"), "idle") == "1 1\nb'x'\n"
