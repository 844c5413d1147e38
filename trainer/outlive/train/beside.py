"""Threads that work beside the training, and are gone before the interpreter is.

One that is still at work when Python ends is torn down in the middle of C++ code, which aborts the process.
"""

import atexit
import os
import threading
from collections.abc import Callable

_started: dict[threading.Thread, tuple[int, Callable[[], None]]] = {}


def beside(work: Callable[[], None], *, name: str, give_up: Callable[[], None]) -> bool:
    """Run `work` in a thread. At the end of the interpreter `give_up` makes it return soon.

    False if the machine gives no thread: then the training does the work itself when it comes to it.
    """
    for known in [known for known in list(_started) if not known.is_alive()]:
        _started.pop(known, None)
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # can't start new thread
        return False
    _started[thread] = (os.getpid(), give_up)
    return True


@atexit.register
def _end() -> None:
    for thread, (process, give_up) in list(_started.items()):
        if process == os.getpid():  # in a fork it is not there, and what it held is held for ever
            give_up()
            thread.join()
