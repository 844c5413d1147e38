"""What a rank says of itself when it is told to stop."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from outlive.train.agreed import AgreedRequests
from outlive.train.boundary import Stand, Want
from outlive.train.stop import EXIT_RESUME, EXIT_SAVE_FAILED


@pytest.mark.parametrize(("saved", "code"), [(5, EXIT_SAVE_FAILED), (6, EXIT_RESUME)])
def test_a_rank_is_saved_only_if_the_step_is_at_which_it_stops(saved: int, code: int) -> None:
    """That an earlier snapshot is secure does not make a stop without a save a saved one."""
    link = SimpleNamespace(refused=None, welcome=SimpleNamespace(mode="sidecar"))
    saving = SimpleNamespace(step=saved, link=link, secure=lambda urgent: True, failure=lambda: "it was not")
    nobody = cast("Any", None)
    requests = AgreedRequests(
        cast("Any", saving), nobody, every=None, council=nobody, first=True, tracked=nobody
    )
    with pytest.raises(SystemExit) as left:
        requests._stop(Want(reason="signal", stop=True), Stand(step=6, epoch=None, metrics={}))
    assert left.value.code == code
