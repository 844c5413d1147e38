"""Agent and training are both gone and a snapshot is only in memory: systemd keeps it for the next agent."""

from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.droplet import Droplet
from e2e.scene import (
    AGENT,
    RUN,
    TRAIN,
    Job,
    Scene,
    acknowledged,
    untouched,
    wait_finished,
    wait_for_step,
)

SLOW = Job(pause=0.05)


def test_snapshot_outlives_agent_and_training(scene: Scene) -> None:
    """The training has stopped, the bucket is silent, the agent is killed: that very step is saved later."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    with scene.silent_bucket():
        droplet.run("systemctl", "kill", "--signal=TERM", TRAIN)
        step = _last_step(droplet)
        droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
        droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=30)
    _is_saved(scene, droplet, step)
    _goes_on_from_memory(scene, droplet, step)


def test_snapshot_outlives_a_restart_of_the_agent(scene: Scene) -> None:
    """`systemctl restart` meets an agent that is killed before it could save: the memory is still there."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    with scene.silent_bucket():
        droplet.run("systemctl", "restart", "--no-block", AGENT)
        step = _last_step(droplet)
        droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
        droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=30)
    _is_saved(scene, droplet, step)
    _goes_on_from_memory(scene, droplet, step)


def test_training_stops_before_the_new_agent_hears_from_the_bucket(scene: Scene) -> None:
    """The new agent takes the running training's last snapshot although the bucket says nothing yet."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    trainer = droplet.unit(TRAIN)["MainPID"]
    with scene.silent_bucket():
        droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
        droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=30)
        assert trainer == droplet.unit(TRAIN)["MainPID"]
        droplet.run("systemctl", "kill", "--signal=TERM", TRAIN)
        step = _last_step(droplet)
    saved = droplet.wait_for(JournalLine(f"saved step {step:,} (signal", unit=AGENT), within=60)
    assert str(step) == saved.fields["OUTLIVE_STEP"]
    assert step == scene.saved()[0].step


def _last_step(droplet: Droplet) -> int:
    """The step that the agent has accepted last, and has not saved."""
    said = droplet.wait_for(JournalLine("finishing the save of step ", unit=AGENT), within=40).message
    droplet.wait_for(UnitState(TRAIN, "inactive"), within=40)
    return int(said.rpartition(" ")[2].replace(",", ""))


def _is_saved(scene: Scene, droplet: Droplet, step: int) -> None:
    line = f"found step {step:,} in memory, left by the agent that died: saving it now"
    droplet.wait_for(JournalLine(line, unit=AGENT), within=60)
    droplet.wait_for(JournalLine(f"saved step {step:,} (", unit=AGENT), within=60)
    assert step in [found.step for found in scene.saved() if found.life == 1]
    scene.outlive("verify", RUN)


def _goes_on_from_memory(scene: Scene, droplet: Droplet, step: int) -> None:
    droplet.wait_for(JournalLine(f"life 1: resumed at step {step:,} from memory", unit=TRAIN), within=40)
    wait_finished(droplet)
    assert step in acknowledged(droplet)
    assert ["finished"] == [life.outcome for life in scene.lives()]
    assert untouched() == scene.end()
    droplet.wait_for(UnitState(AGENT, "inactive"), within=20)
