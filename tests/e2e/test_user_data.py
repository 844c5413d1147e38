"""User-data from `outlive user-data`, pasted: what it makes of a machine, what the training can't reach."""

import io
import json
import re
import tarfile
from pathlib import Path

from e2e.rig.bucket import Bucket
from e2e.rig.conditions import FileThere, JournalLine
from e2e.rig.environments import project_environment, torch_environment
from e2e.rig.machines import Machines
from e2e.rig.packages import pip_packages
from outlive_agent.bootstrap.archive import archive_key
from outlive_agent.bootstrap.job import read_job
from outlive_agent.bootstrap.plan import Archive
from outlive_agent.bootstrap.render import collect, render
from outlive_agent.bootstrap.size import fit

KEYS = (
    "/etc/outlive/credentials",
    "/run/credentials/outlive-agent.service",
    "/run/cloud-init/instance-data-sensitive.json",
    "/var/lib/cloud",
    "/var/lib/outlive",
)
PROBE = (
    f"KEYS = {KEYS}"
    + """
import json, os, pathlib, socket, sys, time, urllib.error, urllib.request

def attempt(action):
    try:
        return str(action())[:2000]
    except Exception as error:
        return f"refused: {type(error).__name__}"

def metadata():
    return urllib.request.urlopen("http://169.254.169.254/metadata/v1.json", timeout=3).read()

def agent():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(os.environ["OUTLIVE_SOCKET"])
        return "connected"

report = {
    "arguments": sys.argv[1:],
    "variable": os.environ["ODD"],
    "user": os.getuid(),
    "metadata": attempt(metadata),
    "agent": attempt(agent),
    "files": {path:
        attempt(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read()) for path in KEYS},
    "usr": attempt(lambda: open("/usr/x", "w")),
    "home": attempt(lambda: open(pathlib.Path.home() / "x", "w")),
}
draft = pathlib.Path.home() / "report.new"
draft.write_text(json.dumps(report))
draft.rename(draft.with_name("report"))
time.sleep(3600)
"""
)
JOB = r"""
run: gpt
store: {location: s3://outlive-test/runs, endpoint: http://10.99.0.1:9000, region: us-east-1}
provider: digitalocean
training:
  archive: code.tar.gz
  venv: /opt/train
  command: [python, probe.py, "a  b", "%n $HOME ${HOME} \"q\" \\ ; é", ";", "\t"]
  environment: {ODD: "a \"b\" $HOME \\ %n 'c' # é"}
"""


ONE_TRY = """\
  - path: /etc/systemd/system/outlive-bootstrap.service.d/tries.conf
    content: |
      [Service]
      Environment=OUTLIVE_BOOTSTRAP_TRIES=1

runcmd:"""


def user_data(job: str, bucket: Bucket, code: Path) -> str:
    """What `outlive user-data` makes of a job whose archive is uploaded."""
    with tarfile.open(code, "w:gz") as archive:
        member = tarfile.TarInfo("training-1.0/probe.py")
        member.size = len(PROBE)
        archive.addfile(member, io.BytesIO(PROBE.encode()))
    key = archive_key("gpt", code)
    bucket.server.client().put_object(Bucket=bucket.server.bucket, Key=f"runs/{key}", Body=code.read_bytes())
    read = read_job(job.replace("s3://outlive-test/runs", bucket.server.location("runs")), name="job.yaml")
    return render(read, collect(read, bucket.server.environment()), archive=Archive(key=key))


def test_training_runs_and_reaches_no_key(tmp_path: Path, machine: Machines, bucket: Bucket) -> None:
    """Agent and training are users of their own; the training gets its words unchanged, and no key."""
    equipment = [
        pip_packages("bookworm"),
        torch_environment(),
        project_environment("/opt/train", torch=True),
    ]
    text = user_data(JOB, bucket, tmp_path / "code.tar.gz")
    droplet = machine(text, datasource="digitalocean", equipment=equipment)
    droplet.wait_for(FileThere("/var/lib/outlive-train/report"), within=60)
    report = json.loads(droplet.read("/var/lib/outlive-train/report"))
    assert list(read_job(JOB, name="job.yaml").training.command[2:]) == report["arguments"]
    assert read_job(JOB, name="job.yaml").training.variables["ODD"] == report["variable"]
    assert "connected" == report["agent"]
    assert [] == [path for path in KEYS if not report["files"][path].startswith("refused")]
    assert report["metadata"].startswith("refused")
    assert report["usr"].startswith("refused")
    assert not report["home"].startswith("refused")

    ask = ("curl", "--silent", "--max-time", "5", "http://169.254.169.254/metadata/v1.json")
    assert "OUTLIVE_S3" in droplet.run(*ask).stdout
    account = ("setpriv", "--reuid=train", "--regid=train", "--clear-groups")
    assert 0 != droplet.run(*account, *ask, check=False).returncode, "outside of its unit too"

    logs = droplet.run("sh", "-c", "cat /var/log/cloud-init*.log /run/cloud-init/instance-data.json").stdout
    assert bucket.server.secret_key not in logs + "".join(droplet.journal.messages())
    assert (
        bucket.server.secret_key
        not in droplet.run("sh", "-c", "cat /proc/*/environ /proc/*/cmdline 2>&1").stdout
    )

    droplet.reboot()
    droplet.wait_for(JournalLine("Started outlive-train.service"), within=30)
    again = droplet.journal.messages(boot=droplet.boot_id, unit="outlive-bootstrap.service")
    assert [] == [line for line in again if "outlive bootstrap" not in line], "a second boot installs nothing"


def test_what_cannot_be_installed_is_said_and_made_up_for(
    tmp_path: Path, machine: Machines, bucket: Bucket
) -> None:
    """pip fails: one line says what to do, the agent runs; put right, a reboot goes on from there."""
    job = JOB.replace("  venv: /opt/train\n", "  requirements: [such-a-package-is-nowhere]\n")
    text = user_data(job, bucket, tmp_path / "code.tar.gz").replace("runcmd:", ONE_TRY)
    text = fit(text, "digitalocean", compress="always")
    droplet = machine(text, release="trixie", equipment=[pip_packages("trixie")])
    droplet.wait_for(JournalLine("this machine can't train yet"), within=60)
    said = droplet.journal.messages(unit="outlive-bootstrap.service")
    complaints = [line for line in said if "can't train yet" in line]
    assert 1 == len(complaints)
    assert "such-a-package-is-nowhere" in complaints[0]
    assert "then: systemctl restart outlive-bootstrap" in complaints[0]
    droplet.wait_for(JournalLine("nothing to resume from"), within=10)
    assert "active" == droplet.unit("outlive-agent.service")["ActiveState"]

    plan = droplet.read("/etc/outlive/job.json")
    right = re.sub(r'"environment": \{.*?\}', '"environment": {"venv": "/opt/own"}', plan, flags=re.DOTALL)
    droplet.run("tee", "/etc/outlive/job.json", stdin=right)
    droplet.run(
        "sh", "-c", "cp -a /opt/outlive/venv /opt/own && mkdir /opt/own/lib/python3.13/site-packages/torch"
    )
    droplet.reboot()
    droplet.wait_for(FileThere("/var/lib/outlive-train/report"), within=60)
    again = "".join(droplet.journal.messages(boot=droplet.boot_id, unit="outlive-bootstrap.service"))
    assert "the training's code is here" not in again, "what was done is not done again"
    assert "everything is installed" in again
