"""A training whose agent is not there: it must not begin another run beside the one that it belongs to."""

from pathlib import Path

import pytest

from outlive.train import sidecar
from outlive.train.link import RefusedError


def test_agent_that_alone_knows_the_store_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens, and nothing says where the run is kept: refused, and no sidecar is started."""
    monkeypatch.setenv("OUTLIVE_SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.delenv("OUTLIVE_STORE", raising=False)
    monkeypatch.delenv("OUTLIVE_CONFIG", raising=False)
    monkeypatch.setattr(sidecar, "ATTACH_SECONDS", 0.0)
    monkeypatch.setattr(sidecar, "start_sidecar", lambda _: pytest.fail("a sidecar was started"))
    with pytest.raises(RefusedError, match="no agent listens on"):
        sidecar.attach_agent({}, stopped=lambda: False, say=print)
