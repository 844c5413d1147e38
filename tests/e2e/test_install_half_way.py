"""The package index vanishes in the middle of an installation: the next boot completes it."""

import zipfile
from pathlib import Path

from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.environments import TORCH, torch_environment
from e2e.rig.index import PackageIndex
from e2e.rig.packages import Equipment, dependencies, project_wheel
from e2e.scene import AGENT, BOOTSTRAP, SOURCE, Job, Scene, drop_in, untouched, wait_finished

OWN = "system_packages: true\n  requirements: [halfway]"
"""An environment is made, and sees the torch of the image's own Python, as on a GPU image."""


def test_pip_fails_half_way_and_the_next_boot_completes_it(
    scene: Scene, cloud: Cloud, tmp_path: Path
) -> None:
    """First in the agent's packages, then in the training's: each boot says what it could not get and goes on
    from what is there. What was installed half is never taken for whole."""
    wheel = project_wheel()
    with PackageIndex(cloud, [wheel.parent, dependencies(wheel, "bookworm"), halfway(tmp_path)]) as index:
        text = drop_in(
            scene.user_data(Job(pause=0, venv=OWN)), BOOTSTRAP, "Environment=OUTLIVE_BOOTSTRAP_TRIES=1"
        )
        index.vanish_in("botocore")
        droplet = scene.machines(text, equipment=[*image_with_torch(), index.equipment])
        said = droplet.wait_for(
            JournalLine("the outlive agent could not be installed", unit=BOOTSTRAP), within=60
        )
        assert "check the network" in said.message
        droplet.wait_for(UnitState(BOOTSTRAP, "failed"), within=10)
        assert index.vanished

        index.come_back()
        index.vanish_in("halfway")
        droplet.reboot()
        said = droplet.wait_for(JournalLine("can't train yet", unit=BOOTSTRAP), within=90)
        assert "installing the training's packages failed" in said.message
        droplet.wait_for(JournalLine("nothing to resume from", unit=AGENT), within=20)
        assert [] == scene.saved()
        droplet.power_cut()

        index.come_back()
        droplet.boot()
        wait_finished(droplet, within=90)
        again = "".join(droplet.journal.messages(unit=BOOTSTRAP, boot=droplet.boot_id))
        assert "the agent is installed" not in again, "what was done is not done again"
        assert untouched() == scene.end()


def image_with_torch() -> list[Equipment]:
    """An image whose own Python has torch."""
    packages = f"{TORCH}/lib/python3.11/site-packages\n"
    files = {
        "/usr/lib/python3/dist-packages/torch.pth": packages,
        "/srv/training/training.py": SOURCE.read_text(),
    }
    return [torch_environment(), Equipment(files=files)]


def halfway(folder: Path) -> Path:
    """A folder with a wheel that nobody has yet."""
    about = "halfway-1.0.dist-info"
    with zipfile.ZipFile(folder / "halfway-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("halfway.py", "# something long\n" * 50_000)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: halfway\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{about}/RECORD", "")
    return folder
