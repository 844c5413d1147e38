"""The rig on a host that others use too: what it makes goes away, however the test process ends."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import cgroups
from e2e.rig.cache import build_once
from e2e.rig.cloud import Cloud
from e2e.rig.droplet import Droplet
from e2e.rig.owner import owner, sweep

_OTHER_RUN = """
from e2e.rig.cloud import Cloud
from e2e.rig.droplet import Droplet
from e2e.rig.owner import owner
droplet = Droplet(Cloud(), "#cloud-config\\n")
droplet.boot()
print(owner().name, droplet.name, flush=True)
input()
"""


def _eventually(condition: Callable[[], bool], within: float = 10) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_killed_test_run_takes_its_guests_along_and_the_next_sweeps() -> None:
    """SIGKILL of a test process ends its guests at once; the next run removes disk, cgroups and claim, and
    nothing of a run that lives."""
    mine = owner()
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", _OTHER_RUN]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": tests, **_plain()},
    ) as other:
        assert other.stdout is not None
        name, guest = other.stdout.readline().split()
        cgroup = cgroups.Cgroup(guest)
        assert cgroup.processes()
        assert name not in sweep()
        assert cgroup.processes()
        other.send_signal(signal.SIGKILL)
        other.wait()

    assert _eventually(lambda: not cgroup.processes())
    disk = owner().folder.with_name(name)
    assert disk.exists()
    assert name in sweep()
    assert not disk.exists()
    assert [] == cgroups.of_owner(name)
    assert mine.folder.exists()


def test_nothing_is_left_on_the_host() -> None:
    """A machine that runs is nothing but a cgroup on the host, and when it is closed not even that, whatever
    ended the test."""

    def traces() -> list[str]:
        links = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
        found = [line for line in links.splitlines() if line.split()[1].startswith(("cloud", "vm"))]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        found += [line for line in mounts if owner().name in line]
        roots = cgroups.hierarchies()
        litter = {"payload", "supervisor", "init.scope", "system.slice"}  # nspawn's and its guest's
        return found + [str(root / name) for root in roots for name in litter if (root / name).exists()]

    during: list[list[str]] = []

    def fails() -> None:
        with Cloud() as cloud, Droplet(cloud, "#cloud-config\n") as droplet:
            droplet.boot()
            during.append(traces())
            raise InterruptedError

    before = traces()
    with pytest.raises(InterruptedError):
        fails()
    assert [before] == during
    assert before == traces()
    assert [] == cgroups.of_owner(owner().name)
    assert not list(owner().folder.iterdir())


def test_half_built_cache_is_never_taken_for_whole(tmp_path: Path) -> None:
    """A builder that dies half way leaves nothing under the final name, and the next one starts clean."""
    target = tmp_path / "image"

    def dies(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(target, dies)
    assert not target.exists()
    build_once(target, lambda folder: (folder / "whole").touch())
    assert ["whole"] == [path.name for path in target.iterdir()]


def test_two_at_once_build_once(tmp_path: Path) -> None:
    """Of two that need the same image at the same time one builds, and the other waits and gets it."""
    target = tmp_path / "image"
    built: list[str] = []
    both = threading.Barrier(2)

    def build(folder: Path) -> None:
        built.append("built")
        (folder / "whole").touch()

    def need() -> None:
        both.wait()
        assert (build_once(target, build) / "whole").exists()
        found.append(True)

    found: list[bool] = []
    threads = [threading.Thread(target=need) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (["built"], [True, True]) == (built, found)


def _plain() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home())}
