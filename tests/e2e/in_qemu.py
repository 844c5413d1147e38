"""The first scenario in a full virtual machine, by hand: `make e2e MACHINE=qemu`. Takes some ten minutes.

What the rig's usual machines can't show: DMI, a kernel of its own, cloud-init that finds its datasource by
itself, the ACPI power button, a disk that is synced or not.
"""

from dataclasses import replace
from pathlib import Path

from e2e.rig.cloud import Cloud
from e2e.rig.index import PackageIndex
from e2e.rig.packages import dependencies, project_wheel
from e2e.rig.virtual import VirtualMachine
from e2e.scene import SLOW, SOURCE, TRAIN, Scene, wait_finished
from e2e.test_install_half_way import OWN


def test_first_boot_to_training_and_the_power_button(scene: Scene, cloud: Cloud, tmp_path: Path) -> None:
    """From pasted user-data to a saved step; the button costs no step; a machine of another kind goes on."""
    job = replace(SLOW, venv=OWN.replace("[halfway]", "[]"), source=scene.archive(SOURCE), stop_grace="120s")
    text = scene.user_data(job, cloud=cloud)
    wheel = project_wheel()
    with (
        PackageIndex(cloud, [wheel.parent, dependencies(wheel, "bookworm")]),
        VirtualMachine(cloud, text) as virtual,
    ):
        virtual.boot()
        virtual.wait_for("the agent is installed and starts", within=900)
        virtual.wait_for("the training starts", within=900)
        virtual.wait_for("saved step", within=300)
        virtual.press_power_button()
        virtual.wait_off(within=300)
        said = virtual.journal().messages()
    stopped = scene.saved()[0].step
    assert any("DataSourceDigitalOcean" in line for line in said)
    stopping = next(number for number, line in enumerate(said) if line.startswith(f"Stopping {TRAIN}"))
    saved = next(number for number, line in enumerate(said) if "the run stopped and is saved" in line)
    assert stopping < saved
    assert f"saved step {stopped:,} " in "\n".join(said)
    assert ["stopped"] == [life.outcome for life in scene.lives()]
    assert [0] == [life.steps_lost for life in scene.lives()]

    machine = scene.next_machine(SLOW)
    wait_finished(machine)
    assert [0, stopped] == [life.from_step for life in scene.lives()]
    assert "finished" == scene.lives()[-1].outcome
