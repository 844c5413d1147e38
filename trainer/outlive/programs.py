"""Our own modules as programs of their own, wherever they are started."""

import sys

_WITHOUT_THE_DIRECTORY = "import sys; sys.path[:] = filter(None, sys.path)"


def program(module: str, *, python: str = sys.executable) -> list[str]:
    """What starts the ``main`` of ``module``, with this interpreter or another; arguments follow.

    ``python -m`` would look for every module in the working directory first, which is the training's: a
    ``types.py`` or ``queue.py`` of the user's there would be imported by us. (Python's ``-P`` is of 3.11.)
    """
    begin = f"{_WITHOUT_THE_DIRECTORY}; from {module} import main; sys.exit(main())"
    return [python, "-c", begin]
