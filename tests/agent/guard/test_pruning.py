"""The removal that goes on beside a training: what it says, and what it never does."""

import io

from fakes.checkpoints import begin, snapshot
from outlive.objects.memory import MemoryStore
from outlive.store.retention import Keep
from outlive_agent.journal import Journal
from outlive_agent.pruning import Pruning


def test_what_a_removal_leaves_alone_is_told_once() -> None:
    """A metric that no checkpoint has would keep nothing, in silence, for the whole run."""
    owner = begin(MemoryStore())
    owner.commit(snapshot(1, b"x", metrics={"loss": 1.0}))
    stream = io.StringIO()
    pruning = Pruning(owner._store, Keep(best="los"), journal=Journal(stream))
    for _ in range(2):
        pruning._next = 0.0
        pruning.after_commit(owner)
        assert pruning._thread is not None
        pruning._thread.join(10)
    (line,) = stream.getvalue().splitlines()
    assert "warning: old checkpoints: no checkpoint has a finite metric 'los'" in line
    assert "they have loss" in line
