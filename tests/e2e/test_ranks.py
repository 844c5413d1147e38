"""Several ranks on a machine that is taken away: torchrun inside the training's unit."""

from pathlib import Path

from e2e.rig.conditions import JournalLine, UnitState
from e2e.scene import AGENT, RUN, TRAIN, Job, Scene, wait_for_step
from ranks.starting import Place, ends_in

EPOCHS = 30
WAY = ["--way", "fsdp", "--epochs", str(EPOCHS)]
TORCHRUN = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
TORCHRUN += ["--local-addr", "127.0.0.1", "ranks.py", *WAY]


def test_ranks_are_reclaimed_and_go_on_elsewhere(scene: Scene, tmp_path: Path) -> None:
    """Two ranks of FSDP2 in the hardened unit: a notice, one save of both, another machine, the same end."""
    first = scene.next_machine(Job(command=[*TORCHRUN, "--pause", "0.05"], every="20 steps"))
    wait_for_step(first, 7)
    scene.outlive("reclaim", RUN, "--in", "6s")
    first.wait_for(JournalLine("stopped and is saved", unit=AGENT), within=60)
    first.wait_for(UnitState(TRAIN, "inactive"), within=20)
    first.power_cut()
    stopped = scene.saved()[0].step
    second = scene.next_machine(Job(command=TORCHRUN, every="500 steps"))
    second.wait_for(JournalLine("the run is finished", unit=AGENT), within=90)
    said = "\n".join(second.journal.messages(unit=TRAIN))
    assert f"resumed at step {stopped} " in said
    assert ends_in(said) == Place(folder=tmp_path).finish("untouched", *WAY)
    assert [0, 0] == [life.steps_lost for life in scene.lives()]
