"""Writes what docs/ON_A_MACHINE.md shows, from a run of the rig: `PYTHONPATH=tests python THIS`."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from e2e.rig.bucket import bucket_in
from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.droplet import Droplet
from e2e.rig.machines import Machines
from e2e.scene import AGENT, RUN, TRAIN, Job, Scene, wait_finished, wait_for_step

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ON_A_MACHINE.md"
UNITS = ("outlive-bootstrap.service", AGENT, TRAIN)


def journal(droplet: Droplet) -> str:
    """What `journalctl -o short-precise -u 'outlive-*'` shows of a life, less what systemd says of itself."""
    lines = []
    for entry in droplet.journal.entries():
        name = entry.fields.get("SYSLOG_IDENTIFIER", "")
        if entry.unit in UNITS and not entry.message.startswith("Creating "):
            noise = name == "systemd" and not entry.message.startswith(("Starting", "Stopped", "Started"))
            if not noise:
                lines.append(f"{entry.at:%H:%M:%S.%f}"[:-3] + f" {name}: {entry.message}")
    return "\n".join(lines)


def record(folder: Path) -> dict[str, str]:
    """Two machines: the first is reclaimed by notice, the second one goes on to the end."""
    with ExitStack() as all_of_it:
        cloud = all_of_it.enter_context(Cloud())
        bucket = all_of_it.enter_context(bucket_in(cloud))
        machines = all_of_it.enter_context(Machines(cloud))
        scene = Scene(bucket=bucket, machines=machines, folder=folder)
        first = scene.next_machine(Job(pause=0.05, epochs=120, every="4 s"))
        wait_for_step(first, 100)
        scene.outlive("reclaim", RUN, "--in", "20s")
        first.wait_for(JournalLine("stopped and is saved", unit=AGENT), within=60)
        first.wait_for(UnitState(TRAIN, "inactive"), within=10)
        first.power_cut()
        second = scene.next_machine(Job(pause=0.001, epochs=120, every="4 s"))
        wait_finished(second)
        return {
            "first": journal(first),
            "second": journal(second),
            "history": scene.outlive("history", RUN, "--clock"),
        }


def main() -> None:
    """Replace each block that a comment names."""
    with tempfile.TemporaryDirectory() as folder:
        told = record(Path(folder))
    text = PAGE.read_text()
    for name, block in told.items():
        head, mark, rest = text.partition(f"<!-- recorded: {name} -->\n```\n")
        assert mark, name
        text = head + mark + block.strip("\n") + "\n```\n" + rest.partition("```\n")[2]
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
