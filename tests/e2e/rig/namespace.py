"""A network namespace that is nothing but an open descriptor: it ends with the process, and has no name."""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from e2e.rig.processes import run

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkNamespace:
    """Made in a thread of its own, since a namespace belongs to a thread; the host's network stays as is."""

    def __init__(self) -> None:
        def make() -> int:
            _check(_libc.unshare(_CLONE_NEWNET))
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        self.descriptor = _in_new_thread(make)

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` inside. A socket made there stays there, whoever uses it afterwards."""

        def enter() -> T:
            _check(_libc.setns(self.descriptor, _CLONE_NEWNET))
            return function()

        return _in_new_thread(enter)

    def ip(self, *arguments: str, pass_fds: tuple[int, ...] = ()) -> str:
        """Run `ip` inside; `ip netns exec` would remount /sys under everybody's feet."""
        return self.call(lambda: run(["ip", *arguments], pass_fds=pass_fds).stdout)

    def close(self) -> None:
        """Let go. The kernel removes it, and every interface in it, with its last process."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _in_new_thread(function: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as error:  # carried over to the caller, not swallowed
            errors.append(error)

    thread = threading.Thread(target=body, name="rig-namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
