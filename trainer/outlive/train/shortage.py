"""What a save says when the machine does not give what it needs."""

import errno

from outlive.errors import StateError

_LIMITS = {
    errno.EFBIG: "raise the limit of file sizes (ulimit -f, LimitFSIZE), which holds for shared memory too",
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "raise the limit of open files (sysctl fs.file-max)",
}
_MEMORY = "leave more memory beside the training (ulimit -v, MemoryMax), or take a larger machine"


def shortage(why: OSError | MemoryError, *, size: int | None) -> StateError:
    """Why this save can't be made. The training goes on, and the next save tries again."""
    number = why.errno if isinstance(why, OSError) else errno.ENOMEM
    what = "the state" if size is None else f"an image of {size / 1e6:.1f} MB"
    reason = why.strerror if isinstance(why, OSError) and why.strerror else "not enough memory"
    return StateError(
        f"the machine gives no room for {what}: {reason}", hint=_LIMITS.get(number or 0, _MEMORY)
    )
