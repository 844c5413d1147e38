"""The machine's clock is an hour off: the store's is asked, and no decision hangs on either."""

from e2e.rig.bucket import bucket_in
from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine
from e2e.rig.machines import Machines
from e2e.scene import AGENT, FAST, SLOW, Job, Scene, drop_in, untouched, wait_finished, wait_for_step

CLOCK = "/var/lib/clock"
"""How far the agent's clock is off, as libfaketime reads it: the guest's own is the host's, and the training,
which asks no clock, would not survive it (that library breaks Python's sleep)."""
LIE = f"""\
Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
Environment=FAKETIME_TIMESTAMP_FILE={CLOCK} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1"""


def off_by(scene: Scene, job: Job, *, clock: str) -> str:
    """User-data of a machine whose clock is that far off, as the agent sees it."""
    text = drop_in(scene.user_data(job), AGENT, LIE)
    file = f'  - path: {CLOCK}\n    content: "{clock}"\n'
    return text.replace("\nwrite_files:\n", f"\nwrite_files:\n{file}", 1)


def test_clock_that_the_bucket_refuses_is_said_and_waited_for(
    cloud: Cloud, machine: Machines, scene: Scene
) -> None:
    """A bucket that checks signatures refuses an hour: one line says how far, and when it is right, the run
    begins by itself."""
    with bucket_in(cloud, "rclone", port=9001) as strict:
        other = Scene(bucket=strict, machines=machine, folder=scene.folder)
        droplet = other.next_machine(user_data=off_by(other, FAST, clock="+1h"))
        said = droplet.wait_for(JournalLine("this machine's clock is 60 min ahead", unit=AGENT), within=30)
        assert "set this machine's clock" in said.message
        assert [] == other.lives()
        droplet.run("tee", CLOCK, stdin="+0")
        wait_finished(droplet)
        assert untouched() == other.end()


def test_machines_whose_clocks_differ_by_hours_hand_the_run_over(scene: Scene) -> None:
    """A bucket that minds no clock: the notice comes in time, and who comes later has the run."""
    ahead = scene.next_machine(user_data=off_by(scene, SLOW, clock="+1h"))
    wait_for_step(ahead, 7)
    scene.outlive("reclaim", "gpt", "--in", "3s")
    ahead.wait_for(JournalLine("stopped and is saved", unit=AGENT), within=40)
    stopped = scene.saved()[0].step
    behind = scene.next_machine(user_data=off_by(scene, FAST, clock="-1h"))
    wait_finished(behind)
    assert [0, stopped] == [life.from_step for life in scene.lives()]
    assert ["stopped", "finished"] == [life.outcome for life in scene.lives()]
    assert untouched() == scene.end()
