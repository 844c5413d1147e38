"""A machine is taken away, in every way that clouds have, and the next one goes on."""

import time
from dataclasses import replace

from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.droplet import Droplet
from e2e.scene import (
    AGENT,
    EPOCHS,
    FAST,
    HURRY,
    RUN,
    SLOW,
    SOURCE,
    TRAIN,
    Job,
    Scene,
    acknowledged,
    drop_in,
    saving,
    untouched,
    wait_finished,
    wait_for_step,
)


def goes_on(scene: Scene, *, at: int) -> Droplet:
    """Another machine resumes at that very step, and ends as if there had been no other one."""
    machine = scene.next_machine(FAST)
    wait_finished(machine)
    said = "\n".join(machine.journal.messages(unit=TRAIN))
    assert f"resumed at step {at} " in said
    assert at == scene.lives()[-1].from_step
    assert "finished" == scene.lives()[-1].outcome
    assert untouched() == scene.end()
    return machine


def test_reclaim_by_notice_costs_no_step(scene: Scene) -> None:
    """Notice, last save, another machine: it goes on at the exact step and ends as if nothing had been."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    scene.outlive("reclaim", RUN, "--in", "4s")
    first.wait_for(JournalLine("stopped and is saved", unit=AGENT), within=40)
    first.wait_for(UnitState(TRAIN, "inactive"), within=10)
    first.power_cut()
    stopped = scene.saved()[0].step
    assert acknowledged(first)[-1] == stopped
    assert first.journal.entries(matches=(f"OUTLIVE_RUN={RUN}", f"OUTLIVE_STEP={stopped}", "OUTLIVE_LIFE=1"))
    assert {"notice", "plan", "ended"} <= set(scene.events(1))
    goes_on(scene, at=stopped)
    assert [0, 0] == [life.steps_lost for life in scene.lives()]
    assert "reclaimed, saved" in scene.outlive("history", RUN)


def test_training_that_fails_on_its_way_out_brings_no_agent_back(scene: Scene) -> None:
    """Stopped by a notice, its command ends with 1: systemd tries the training again, which finds no agent:
    this machine claims no life that would take the run from the next one."""
    training = f"python {SOURCE.name} --epochs {EPOCHS} --pause {SLOW.pause} --hurry {HURRY}"
    command = f"{training}; code=$?; [ $code = 75 ] && exit 1; exit $code"
    first = scene.next_machine(replace(SLOW, command=["sh", "-c", command]))
    wait_for_step(first, 7)
    scene.outlive("reclaim", RUN, "--in", "now")
    first.wait_for(JournalLine("stopped and is saved", unit=AGENT), within=40)
    shown = first.wait_for(UnitState(TRAIN, "failed"), within=40)
    assert "78" == shown["ExecMainStatus"]
    assert int(shown["NRestarts"]) > 0, "systemd has tried"
    assert "inactive" == first.unit(AGENT)["ActiveState"]
    assert 1 == len(scene.lives())
    goes_on(scene, at=scene.saved()[0].step)


def test_reclaim_while_the_bucket_is_silent_ends_in_time_and_says_what_it_cost(scene: Scene) -> None:
    """The last save can't be brought home: the agent ends with 74 before the deadline and stays down, and the
    next machine goes on from the last checkpoint that was acknowledged."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    scene.outlive("reclaim", RUN, "--in", "8s")
    first.wait_for(JournalLine("reclaim announced by inbox", unit=AGENT), within=20)
    with scene.silent_bucket():
        shown = first.wait_for(UnitState(AGENT, "failed"), within=40)
        first.wait_for(UnitState(TRAIN, "inactive"), within=10)
        first.power_cut()
    assert ("74", "0") == (shown["ExecMainStatus"], shown["NRestarts"])
    newest = scene.saved()[0].step
    assert acknowledged(first)[-1] <= newest
    goes_on(scene, at=newest)


def test_power_button_costs_no_step(scene: Scene) -> None:
    """No notice: the training stops and hands its state over, then the agent sees it home."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    first.power_off()
    said = first.journal.messages()
    assert said.index("Stopping outlive-train.service - outlive training...") < next(
        number for number, line in enumerate(said) if "the run stopped and is saved" in line
    )
    stopped = scene.saved()[0].step
    assert "stopped" == scene.lives()[0].outcome
    assert 0 == scene.lives()[0].steps_lost
    goes_on(scene, at=stopped)


def test_power_cut_in_a_save_loses_nothing_acknowledged(scene: Scene) -> None:
    """The plug is pulled while bytes are under way: the checkpoint before stands, whole."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    with scene.silent_bucket():
        saving(first)
        first.power_cut()
    newest = scene.saved()[0].step
    assert acknowledged(first)[-1] <= newest
    scene.outlive("verify", RUN)
    goes_on(scene, at=newest)
    assert "vanished" == scene.lives()[0].outcome


def test_too_short_stop_loses_nothing_acknowledged(scene: Scene) -> None:
    """A step longer than the time to stop: systemd kills the training, and the last checkpoint stands."""
    text = scene.user_data(Job(pause=60, every="1 step", stop_grace="1s"))
    first = scene.next_machine(user_data=text)
    wait_for_step(first, 1)
    first.power_off()
    assert any("Killing process" in line and "SIGKILL" in line for line in first.journal.messages(unit=TRAIN))
    assert [1] == acknowledged(first)
    goes_on(scene, at=1)


def test_slow_bucket_gets_more_time_than_the_unit_has(scene: Scene) -> None:
    """The last save takes longer than TimeoutStopSec: the agent asks systemd for more, and commits."""
    text = drop_in(scene.user_data(SLOW), AGENT, "TimeoutStopSec=3")
    first = scene.next_machine(user_data=text)
    wait_for_step(first, 7)
    with scene.silent_bucket():
        saving(first)
        first.press_power_button()
        first.wait_for(JournalLine("Stopping outlive-agent.service"), within=20)
        time.sleep(6)  # the time itself is what is tested: twice what the unit allows
    first.wait_off()
    assert not [line for line in first.journal.messages(unit=AGENT) if "SIGKILL" in line]
    stopped = scene.saved()[0].step
    assert acknowledged(first)[-1] == stopped
    assert 0 == scene.lives()[0].steps_lost
    goes_on(scene, at=stopped)
