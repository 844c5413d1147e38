"""The doctor on a real machine, beside a run that trains."""

import json

from e2e.scene import RUN, SLOW, Scene, wait_for_step


def test_root_asks_the_doctor(scene: Scene) -> None:
    """It sees keys, run, units and packages as the agent has them, disturbs nobody and leaves nothing."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 7)
    asked = droplet.run("outlive", "doctor", "--window", "2 min", "--json", check=False)
    said = json.loads(asked.stdout)
    found = {finding["check"]: finding for finding in said["findings"]}
    assert (asked.returncode, said["run"], said["not_checked"]) == (0, RUN, [])
    assert found["checkpoint"]["figures"]["step"] > 0
    assert found["unit-times"]["figures"] == {"train_stop_seconds": 30.0, "agent_stop_seconds": 20.0}
    assert found["software"]["figures"]["torch"]
    assert found["last-save"]["figures"]["fits"] is True
    assert "those that the unit loads" in found["keys"]["seen"]
    assert scene.bucket.server.secret_key not in asked.stdout
    assert [info.key for info in scene.store.list(".outlive-probe/")] == []
    saved = scene.saved()[-1].step
    wait_for_step(droplet, saved + 20)
