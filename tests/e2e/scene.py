"""A run and the machines it passes through: real user-data, a small real training, a bucket from outside."""

import functools
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.rig.bucket import Bucket
from e2e.rig.cloud import Cloud
from e2e.rig.conditions import JournalLine
from e2e.rig.datasource import Datasource
from e2e.rig.droplet import Droplet
from e2e.rig.environments import project_environment, torch_environment
from e2e.rig.machines import Machines
from e2e.rig.packages import Equipment
from outlive import __version__
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store.fetch import fetch
from outlive.store.layout import CheckpointId
from outlive.store.newest import checkpoints, read_manifest
from outlive_agent.story import LifeStory, read_story

AGENT, TRAIN = "outlive-agent.service", "outlive-train.service"
BOOTSTRAP = "outlive-bootstrap.service"
SOURCE = Path(__file__).parents[1] / "fault" / "training.py"
RANKS = Path(__file__).parents[1] / "ranks" / "training.py"
EPOCHS, STEPS = 40, 320
HURRY = "/srv/training/hurry"
RUN = "gpt"
CREDENTIALS = ("OUTLIVE_S3_ACCESS_KEY_ID", "OUTLIVE_S3_SECRET_ACCESS_KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a job file says. `pause` is the time between two steps, more and more of it towards the end, until
    `wait_finished` ends the pauses: what a test has to take the machine."""

    pause: float = 0.05
    epochs: int = EPOCHS
    every: str = "10 steps"
    venv: str = "venv: /opt/train"
    source: str = "directory: /srv/training"
    stop_grace: str = "30s"
    command: Sequence[str] = ()
    more: str = ""
    """Further lines of the job file."""

    def text(self, bucket: Bucket) -> str:
        """The job file."""
        training = ["python", "training.py", "--epochs", str(self.epochs), "--pause", str(self.pause)]
        training += ["--hurry", HURRY]
        return f"""\
run: {RUN}
store: {{location: {bucket.server.location("runs")}, endpoint: "{bucket.endpoint}", region: us-east-1}}
save: {{every: {self.every}}}
provider: digitalocean
training:
  {self.source}
  {self.venv}
  stop_grace: {self.stop_grace}
  command: {json.dumps(list(self.command) or training)}
{self.more}"""


SLOW = Job(pause=0.05)
"""Saves early and often, and does not reach its end before `wait_finished` lets it."""
FAST = Job(pause=0, every="100 steps")
"""Gets to the end."""


def lent(*, agent: bool = True) -> list[Equipment]:
    """Agent, torch and the code, there already: nothing is installed from boot to the first step."""
    mark = {"installed": f"outlive=={__version__}\n"}
    return [
        torch_environment(),
        project_environment("/opt/train", torch=True),
        Equipment(
            files={
                "/srv/training/training.py": SOURCE.read_text(),
                "/srv/training/ranks.py": RANKS.read_text(),
            }
        ),
        *([project_environment("/opt/outlive/venv", files=mark)] if agent else []),
    ]


@dataclass(slots=True)
class Scene:
    """One run in one bucket. `next_machine()` is a new disk; `droplet.boot()` is the same one again."""

    bucket: Bucket
    machines: Machines
    folder: Path
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> ObjectStore:
        """The bucket, as the desk sees it: also while guests don't."""
        return _opened(self.bucket)

    def user_data(self, job: Job, *, cloud: Cloud | None = None) -> str:
        """What is pasted, made by the command line: in the `cloud`'s network where it uploads code."""
        file, made = self.folder / "job.yaml", self.folder / "user-data.yaml"
        file.write_text(job.text(self.bucket))
        arguments = ["user-data", str(file), "-o", str(made)]
        environ = {**self.environ(), **self.keys}
        if cloud is None:
            done = _outlive(*arguments, environ=environ)
            assert 0 == done.returncode, done.stderr
        else:
            variables = [f"{name}={value}" for name, value in environ.items()]
            command = ["env", *variables, sys.executable, "-m", "outlive_agent", *arguments]
            assert 0 == cloud.popen(command).wait(60)
        return made.read_text()

    def archive(self, script: Path) -> str:
        """A job's line for code that lies in an archive at the desk."""
        with tarfile.open(self.folder / "code.tar.gz", "w:gz") as archive:
            archive.add(script, f"code/{script.name}")
        return "archive: code.tar.gz"

    def next_machine(
        self,
        job: Job | None = None,
        *,
        equipment: Sequence[Equipment] = (),
        datasource: Datasource = "nocloud",
        user_data: str = "",
    ) -> Droplet:
        """A machine that has never been there, and knows nothing but its user-data."""
        text = user_data or self.user_data(job or Job())
        return self.machines(text, equipment=[*lent(), *equipment], datasource=datasource)

    @contextmanager
    def silent_bucket(self) -> Iterator[None]:
        """The bucket takes connections and answers nothing, as long as the block lasts."""
        server = self.bucket.server.programs[0]
        server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            server.signal(signal.SIGCONT)

    def environ(self) -> dict[str, str]:
        """What the desk has in its environment."""
        return {**self.bucket.server.environment(), "OUTLIVE_STORE": self.bucket.server.location("runs")}

    def outlive(self, *arguments: str) -> str:
        """A command at the desk."""
        done = _outlive(*arguments, environ=self.environ())
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def lives(self) -> list[LifeStory]:
        """What the bucket tells of each life."""
        return read_story(self.store, RUN)

    def saved(self) -> list[CheckpointId]:
        """The checkpoints, newest first."""
        return checkpoints(self.store, RUN)

    def events(self, life: int) -> list[str]:
        """What happened in a life."""
        return [event.event for event in self.lives()[life - 1].events]

    def end(self) -> tuple[int, bytes, object]:
        """Step, tensors and values of the newest checkpoint."""
        return _state(self.store)


def drop_in(user_data: str, unit: str, settings: str) -> str:
    """The same user-data, with settings of a unit's service changed before it starts."""
    lines = "".join(f"      {line}\n" for line in settings.splitlines())
    file = f"  - path: /etc/systemd/system/{unit}.d/test.conf\n    content: |\n      [Service]\n{lines}"
    assert 1 == user_data.count("\nwrite_files:\n")
    return user_data.replace("\nwrite_files:\n", f"\nwrite_files:\n{file}")


def wait_for_step(droplet: Droplet, step: int, *, within: float = 40) -> None:
    """Until the training is seen to have saved that step or a later one."""
    droplet.wait_for(SavedStep(step), within=within)


@dataclass(frozen=True, slots=True)
class SavedStep:
    """The agent's journal says that this step, or a later one, is a checkpoint."""

    step: int

    def __call__(self, guest: object) -> int | None:
        assert isinstance(guest, Droplet)
        steps = acknowledged(guest, boot=guest.boot_id)
        return steps[-1] if steps and steps[-1] >= self.step else None


def acknowledged(droplet: Droplet, *, boot: str = "") -> list[int]:
    """The steps that the journal says are saved, in order."""
    said = droplet.journal.messages(unit=AGENT, boot=boot)
    return [int(line.split()[2].replace(",", "")) for line in said if line.startswith("saved step ")]


def saving(droplet: Droplet) -> None:
    """Until an upload is under way."""
    droplet.wait_for(Saving(), within=20)


@dataclass(frozen=True, slots=True)
class Saving:
    """The agent's status says that it sends a checkpoint."""

    def __call__(self, guest: object) -> bool | None:
        assert isinstance(guest, Droplet)
        return '"phase":"saving"' in guest.read("/run/outlive/status.json").replace(" ", "") or None


def wait_finished(droplet: Droplet, *, within: float = 60) -> str:
    """Let the training hurry, and wait until the run is finished; what the agent said."""
    droplet.run("sh", "-c", f"mkdir -p /srv/training && touch {HURRY}")
    return droplet.wait_for(JournalLine("the run is finished", unit=AGENT), within=within).message


@functools.cache
def untouched(epochs: int = EPOCHS) -> tuple[int, bytes, object]:
    """The end of the same training that nobody interrupted."""
    with tempfile.TemporaryDirectory(prefix="outlive-untouched-") as folder:
        training = [sys.executable, str(SOURCE), "--epochs", str(epochs)]
        done = _outlive(
            "exec",
            "--store",
            f"{folder}/store",
            "--run",
            RUN,
            "--",
            *training,
            environ={"XDG_RUNTIME_DIR": folder},
        )
        assert 0 == done.returncode, done.stderr
        return _state(open_store(f"{folder}/store"))


def _state(store: ObjectStore) -> tuple[int, bytes, object]:
    newest = checkpoints(store, RUN)[0]
    manifest = read_manifest(store, RUN, newest)
    image = bytearray(manifest.parts[0].bytes)
    (notes,) = fetch(store, manifest, memoryview(image))
    values = json.loads(notes.values)
    # The Python of the machine; and whether the last save was just before the loop ended, or after.
    del values["environment"], values["loops"]
    return newest.step, bytes(image), values


def _opened(bucket: Bucket) -> ObjectStore:
    from outlive.objects.credentials import Credentials

    server = bucket.server
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    return open_store(server.location("runs"), credentials=keys, endpoint=server.endpoint, region="us-east-1")


def _outlive(*arguments: str, environ: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-m", "outlive_agent", *arguments]
    return subprocess.run(
        command, env={**kept, **environ}, capture_output=True, text=True, timeout=120, check=False
    )
