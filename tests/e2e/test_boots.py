"""A machine boots: for the first time, again, for a run that is finished, beside another one."""

from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.environments import project_environment, torch_environment
from e2e.rig.packages import pip_packages
from e2e.scene import (
    AGENT,
    BOOTSTRAP,
    FAST,
    RUN,
    SLOW,
    SOURCE,
    STEPS,
    TRAIN,
    Job,
    Scene,
    acknowledged,
    drop_in,
    untouched,
    wait_finished,
    wait_for_step,
)


def test_first_boot_to_the_end_from_nothing_but_user_data(scene: Scene, cloud: Cloud) -> None:
    """A stock image with pip installs the agent, fetches the code and trains; no secret is left anywhere."""
    job = Job(pause=0, source=scene.archive(SOURCE))
    text = scene.user_data(job, cloud=cloud)
    equipment = [pip_packages("bookworm"), torch_environment(), project_environment("/opt/train", torch=True)]
    droplet = scene.machines(text, datasource="digitalocean", equipment=equipment)
    assert [] == droplet.wait_for_cloud_init()["errors"]
    wait_finished(droplet, within=90)
    assert untouched() == scene.end()
    assert ["started", "fresh", "training", "ended"] == scene.events(1)
    secret = scene.bucket.server.secret_key
    said = droplet.run("sh", "-c", "cat /var/log/cloud-init*.log /run/cloud-init/instance-data.json").stdout
    assert secret not in said + "\n".join(droplet.journal.messages())
    seen = droplet.run("sh", "-c", "ps -ef; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true").stdout
    assert secret not in seen


def test_finished_run_does_nothing_on_the_next_machine(scene: Scene) -> None:
    """Who boots a machine for a run that is finished is told so; nothing is trained or saved again."""
    first = scene.next_machine(FAST)
    wait_finished(first)
    end, saved = scene.end(), scene.saved()
    second = scene.next_machine(FAST)
    assert f"life 2: the run is finished (step {STEPS}, 0 checkpoints" in wait_finished(second)
    second.wait_for(UnitState(TRAIN, "inactive"), within=10)
    second.wait_for(UnitState(AGENT, "inactive"), within=10)
    assert saved == scene.saved()
    assert end == scene.end()
    second.reboot()
    wait_finished(second)
    assert saved == scene.saved()


def test_reboot_goes_on_at_the_exact_step(scene: Scene) -> None:
    """The same machine reboots: the last step is saved, nothing is installed again, the run goes on."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 7)
    before = droplet.boot_id
    droplet.reboot()
    wait_finished(droplet)
    stopped = acknowledged(droplet, boot=before)[-1]
    assert [0, stopped] == [life.from_step for life in scene.lives()]
    assert [0, 0] == [life.steps_lost for life in scene.lives()]
    again = droplet.journal.messages(boot=droplet.boot_id, unit="outlive-bootstrap.service")
    assert not [line for line in again if "is here" in line or "is installed" in line]
    assert untouched() == scene.end()


def test_agent_on_another_debian_restores_and_costs_the_run_nothing(scene: Scene) -> None:
    """trixie, with another Python: the agent restores what bookworm saved. The machine can't train, says so,
    and the one after it goes on at the same step."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    first.power_off()
    stopped = scene.saved()[0].step
    text = drop_in(scene.user_data(FAST), BOOTSTRAP, "Environment=OUTLIVE_BOOTSTRAP_TRIES=1")
    second = scene.machines(text, release="trixie", equipment=[pip_packages("trixie")])
    second.wait_for(JournalLine(f"restored step {stopped:,} (life 1)", unit=AGENT), within=60)
    said = second.wait_for(JournalLine("can't train yet", unit=BOOTSTRAP), within=30).message
    assert "/opt/train/bin/python does not have outlive and torch" in said
    second.power_off()
    wait_finished(scene.next_machine(FAST))
    assert [0, stopped, stopped] == [life.from_step for life in scene.lives()]
    assert untouched() == scene.end()


def test_of_two_machines_the_later_one_has_the_run(scene: Scene) -> None:
    """The earlier one says who took over, stops without harm, and is not started again."""
    first = scene.next_machine(SLOW)
    wait_for_step(first, 7)
    second = scene.next_machine(FAST)
    lost = first.wait_for(JournalLine("is superseded by life 2 on ", unit=AGENT), within=30).message
    assert "droplet-" in lost
    first.wait_for(UnitState(TRAIN, "failed"), within=20)
    first.wait_for(UnitState(AGENT, "failed"), within=20)
    wait_finished(second)
    assert ["superseded", "finished"] == [life.outcome for life in scene.lives()]
    assert untouched() == scene.end()
    assert 2 == len(scene.lives()), "the earlier one has not come back"
    scene.outlive("verify", RUN)
