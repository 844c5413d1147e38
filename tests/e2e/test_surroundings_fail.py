"""What a machine needs is missing: it waits or stops, says what is wrong, and makes up for it."""

from e2e.rig.bucket import bucket_in
from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine, UnitState
from e2e.rig.machines import Machines
from e2e.rig.packages import pip_packages
from e2e.scene import (
    AGENT,
    BOOTSTRAP,
    EPOCHS,
    FAST,
    RUN,
    SLOW,
    SOURCE,
    TRAIN,
    Job,
    Scene,
    acknowledged,
    drop_in,
    lent,
    untouched,
    wait_finished,
    wait_for_step,
)

DISK = ("/var/lib/outlive", "/var/lib/outlive-train", "/run/outlive", "/var/tmp", "/tmp")  # noqa: S108  # the guest's
_MOUNTS = "; ".join(f"mkdir -p {place}; mount -t tmpfs -o size=1m,mode=1777 none {place}" for place in DISK)
SMALL_DISK = f"bootcmd: ['{_MOUNTS}']"


def test_bucket_away_at_boot_is_waited_for(scene: Scene) -> None:
    """The machine says that it waits, trains nothing meanwhile, and starts when the bucket is back."""
    scene.bucket.cable.cut()
    droplet = scene.next_machine(FAST)
    droplet.wait_for(JournalLine("trying again", unit=AGENT), within=20)
    droplet.wait_for(JournalLine("Started outlive-train.service"), within=20)
    assert [] == scene.lives()
    scene.bucket.cable.mend()
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_bucket_away_for_a_while_costs_no_step(scene: Scene) -> None:
    """Training goes on without the bucket; saves work again by themselves."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 7)
    scene.bucket.cable.cut()
    droplet.wait_for(JournalLine("trying again", unit=AGENT), within=20)
    before = acknowledged(droplet)[-1]
    scene.bucket.cable.mend()
    wait_for_step(droplet, before + 10)
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_wrong_keys_are_said_at_once(cloud: Cloud, machine: Machines, scene: Scene) -> None:
    """Keys that the bucket refuses end the boot with one clear line; trying again would not help."""
    with bucket_in(cloud, "rclone", port=9001) as strict:
        wrong = {"OUTLIVE_S3_SECRET_ACCESS_KEY": "x" * 32}
        other = Scene(bucket=strict, machines=machine, folder=scene.folder, keys=wrong)
        droplet = other.next_machine(FAST)
        droplet.wait_for(UnitState(AGENT, "failed"), within=30)
        droplet.wait_for(UnitState(TRAIN, "failed"), within=30)
        shown = droplet.unit(AGENT)
        assert ("78", "0") == (shown["ExecMainStatus"], shown["NRestarts"])
        assert "78" == droplet.unit(TRAIN)["ExecMainStatus"], "it has not begun a run of its own on this disk"
        errors = [entry for entry in droplet.journal.entries(unit=AGENT) if entry.priority == 3]
        assert "check the access key, the secret key" in errors[0].message
        assert "x" * 32 not in "\n".join(droplet.journal.messages())
        assert [] == other.lives()


def test_repository_that_is_not_there_is_said_and_made_up_for(scene: Scene) -> None:
    """One line says which address can't be cloned; put right, one command goes on from there."""
    job = Job(pause=0, source="repository: {url: 'file:///srv/code.git', ref: main}")
    text = drop_in(scene.user_data(job), BOOTSTRAP, "Environment=OUTLIVE_BOOTSTRAP_TRIES=1")
    droplet = scene.next_machine(user_data=text)
    said = droplet.wait_for(JournalLine("can't train yet", unit=BOOTSTRAP), within=30).message
    assert "/srv/code.git" in said
    assert "systemctl restart outlive-bootstrap" in said
    commit = (
        "git init -q -b main /srv/work && cd /srv/work && cp /srv/training/training.py . && git add . && "
        "git -c user.name=x -c user.email=x@x commit -qm x && git clone -q --bare /srv/work /srv/code.git && "
        "git config --system --add safe.directory '*'"
    )
    droplet.run("sh", "-c", commit)
    droplet.run("systemctl", "restart", BOOTSTRAP)
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_metadata_server_dies_and_nobody_cares(scene: Scene, cloud: Cloud) -> None:
    """Once booted, neither training nor saving nor a reboot needs the metadata server."""
    droplet = scene.next_machine(SLOW, datasource="digitalocean")
    wait_for_step(droplet, 7)
    cloud.metadata.status = 500
    before = droplet.boot_id
    droplet.reboot()
    wait_finished(droplet)
    assert acknowledged(droplet, boot=before)[-1] == scene.lives()[1].from_step
    assert untouched() == scene.end()


def test_crash_loop_ends_with_its_reason(scene: Scene) -> None:
    """A training that fails again and again is given up: agent and history say so, and what to do."""
    broken = Job(command=["python", "-c", "raise SystemExit('no such data set')"])
    text = drop_in(scene.user_data(broken), TRAIN, "RestartSec=100ms")
    droplet = scene.next_machine(user_data=text)
    said = droplet.wait_for(
        JournalLine("the training has ended and is not started again", unit=AGENT), within=40
    ).message
    assert "systemctl restart outlive-agent" in said
    droplet.wait_for(UnitState(AGENT, "failed"), within=20)
    assert 5 == droplet.journal.messages(unit=TRAIN).count("no such data set")
    assert "failed" == scene.lives()[0].outcome
    droplet.run("tee", f"/etc/systemd/system/{TRAIN}.d/zz.conf", stdin=_right(SOURCE.name))
    droplet.run("systemctl", "daemon-reload")
    droplet.run("systemctl", "reset-failed", TRAIN)
    droplet.run("systemctl", "restart", AGENT)
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_training_that_never_says_a_word(scene: Scene) -> None:
    """A training that ends well without having attached is not waited for: no machine idles for it."""
    silent = Job(command=["python", "-c", "print('all done')"])
    droplet = scene.next_machine(user_data=scene.user_data(silent))
    droplet.wait_for(JournalLine("the training has ended and is not started again", unit=AGENT), within=40)
    droplet.wait_for(UnitState(AGENT, "failed"), within=20)
    assert 1 == droplet.journal.messages(unit=TRAIN).count("all done")


def test_socket_is_for_the_training_alone(scene: Scene) -> None:
    """Neither a stranger nor a member of the agent's group who is not the training gets a word in."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 7)
    knock = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        "s.connect('/run/outlive/agent.sock'); print(s.recv(10))"
    )
    stranger = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "python3", "-c", knock)
    assert "PermissionError" in droplet.run(*stranger, check=False).stderr
    member = ("setpriv", "--reuid=nobody", "--regid=outlive", "--clear-groups", "python3", "-c", knock)
    assert "b''" in droplet.run(*member).stdout
    refused = droplet.wait_for(JournalLine("a connection was refused", unit=AGENT), within=10).message
    assert "may not connect" in refused
    wait_for_step(droplet, scene.saved()[0].step + 10)
    assert RUN == droplet.journal.entries(matches=(f"OUTLIVE_RUN={RUN}",))[-1].fields["OUTLIVE_RUN"]


def test_full_disk_at_installation_is_said_and_made_up_for(scene: Scene) -> None:
    """An agent that does not fit on the disk: one line says so; with room made, one command goes on."""
    text = drop_in(scene.user_data(FAST), BOOTSTRAP, "Environment=OUTLIVE_BOOTSTRAP_TRIES=1")
    full = "bootcmd: [mkdir -p /opt/outlive && mount -t tmpfs -o size=1m none /opt/outlive]"
    text = text.replace("\nwrite_files:\n", f"\n{full}\n\nwrite_files:\n")
    equipment = [*lent(agent=False), pip_packages("bookworm")]
    droplet = scene.machines(text, equipment=equipment)
    droplet.wait_for(JournalLine("is the disk full", unit=BOOTSTRAP), within=60)
    droplet.wait_for(UnitState(BOOTSTRAP, "failed"), within=10)
    droplet.run("umount", "/opt/outlive")
    droplet.run("systemctl", "restart", BOOTSTRAP)
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_full_disk_while_training_costs_no_step(scene: Scene) -> None:
    """Where nothing can be written any more, snapshots still can: they lie in memory. Saves, a new agent and
    the last save need no room on the disk."""
    text = scene.user_data(SLOW).replace("\nwrite_files:\n", f"\n{SMALL_DISK}\n\nwrite_files:\n")
    droplet = scene.next_machine(user_data=text)
    wait_for_step(droplet, 7)
    fill = f"for place in {' '.join(DISK)}; do dd if=/dev/zero of=$place/fill bs=64k 2>&1; done; true"
    said = droplet.run("sh", "-c", fill).stdout
    assert len(DISK) == said.count("No space left on device")
    wait_for_step(droplet, scene.saved()[0].step + 20)
    droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
    droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=20)
    wait_for_step(droplet, scene.saved()[0].step + 20)
    droplet.power_off()
    assert ["stopped"] == [life.outcome for life in scene.lives()]
    assert acknowledged(droplet)[-1] == scene.saved()[0].step
    wait_finished(scene.next_machine(FAST))
    assert [0, 0] == [life.steps_lost for life in scene.lives()]
    assert untouched() == scene.end()


def _right(script: str) -> str:
    command = f"/usr/bin/env python {script} --epochs {EPOCHS}"
    return f"[Service]\nExecStart=\nExecStart={command}\n"
