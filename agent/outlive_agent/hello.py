"""Who may train: the checks on a hello, before anything is promised to it."""

from outlive.errors import ProtocolError
from outlive.staging.messages import PROTOCOL, Hello
from outlive.store.lives import Life


def check_hello(hello: Hello, *, life: Life | None, busy: bool, stopping: bool, taken_over: bool) -> None:
    """``ProtocolError`` with the reason why this trainer must not train."""
    if hello.protocol != PROTOCOL:
        raise ProtocolError(
            f"the training speaks protocol {hello.protocol}, the agent {PROTOCOL}",
            hint="install the same version of outlive for the agent and for the training",
        )
    if hello.local_world != hello.world:
        raise ProtocolError(
            f"{hello.local_world} of this job's {hello.world} ranks are on this machine, and ranks of several"
            " machines can't be saved yet",
            hint="start all ranks on one machine: torchrun --nnodes 1",
        )
    if hello.rank:
        raise ProtocolError(
            f"rank {hello.rank} has come to the agent, and not rank 0",
            hint="every rank must call outlive.attach",
        )
    if stopping:
        raise ProtocolError("the run is being stopped on this machine")
    if busy:
        raise ProtocolError(
            "another training is connected to this agent",
            hint="one agent guards one training: give the second one an 'outlive exec' of its own",
        )
    if hello.life and (life is None or (hello.life, hello.nonce) != (life.number, life.nonce)):
        raise ProtocolError(
            f"this training is life {hello.life}, and this agent guards another",
            hint="stop it, and let it be started again by its agent",
        )
    if taken_over and not hello.life:
        raise ProtocolError("this agent has taken over a life whose training still runs, and starts no other")
