"""Whoever is on the machine: root asks and is answered, everybody else finds no key."""

import re

from e2e.scene import AGENT, RUN, SLOW, TRAIN, Scene, wait_for_step

NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
TRAINING = ("setpriv", "--reuid=train", "--regid=train", "--clear-groups")
ALL_BUT_LIBRARIES = ("/etc", "/home", "/opt/outlive", "/root", "/run", "/srv", "/usr/local", "/var")


def test_root_asks_and_others_are_told_to_be_root(scene: Scene) -> None:
    """`sudo outlive ls` and its like work as they stand; without sudo one line says what is missing."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 7)
    step = scene.saved()[-1].step
    assert f" {step} " in droplet.run("outlive", "ls", RUN).stdout
    assert "life 1" in droplet.run("outlive", "status").stdout.lower()
    assert "not ended" in droplet.run("outlive", "history", RUN).stdout
    for verb in (("ls",), ("show", RUN), ("verify", RUN)):
        assert RUN in droplet.run("outlive", *verb).stdout, verb
    refused = droplet.run(*NOBODY, "outlive", "ls", check=False)
    assert 78 == refused.returncode
    assert "sudo outlive" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_keys_are_in_no_file_that_others_can_read(scene: Scene) -> None:
    """Neither a stranger nor the training's user finds a key in any file; systemd finds the units tight."""
    droplet = scene.next_machine(SLOW, datasource="digitalocean")
    wait_for_step(droplet, 7)
    keys = f"{scene.bucket.server.access_key}\n{scene.bucket.server.secret_key}\n"
    search = ("grep", "-rlsF", "-f", "-", *ALL_BUT_LIBRARIES)
    assert "/etc/outlive/credentials" in droplet.run(*search, stdin=keys).stdout.splitlines()
    for who in (NOBODY, TRAINING):
        assert "" == droplet.run(*who, *search, stdin=keys, check=False).stdout
    pid = droplet.unit(TRAIN)["MainPID"]
    seen = droplet.run("sh", "-c", f"cat /proc/{pid}/environ /proc/*/cmdline; ps -ef").stdout
    assert "OUTLIVE_SOCKET" in seen
    assert not [key for key in keys.split() if key in seen]
    for unit, most in ((AGENT, 2.0), (TRAIN, 2.5)):
        judged = droplet.run("systemd-analyze", "security", "--no-pager", unit).stdout
        level = re.search(r"exposure level for \S+: ([0-9.]+)", judged)
        assert level is not None
        assert float(level[1]) <= most, judged
