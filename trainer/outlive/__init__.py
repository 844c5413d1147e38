"""Training runs that outlive their machine.

``outlive.attach`` is all a training script needs. It is loaded on first use, so that the agent, which shares
this package's store, starts without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlive.train.run import Run, attach
else:

    def __getattr__(name: str) -> object:
        if name in __all__:
            from outlive.train import run

            return getattr(run, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Run", "attach"]
__version__ = "0.1.0"
