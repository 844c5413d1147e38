"""Job files: strict, all problems at once, no secret in them; and the words for systemd, pip, the machine."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from outlive.errors import ConfigError
from outlive_agent import config
from outlive_agent.bootstrap import render, unit_text
from outlive_agent.bootstrap.job import Job, load, read_job
from outlive_agent.bootstrap.job_readers import FromEnv
from outlive_agent.bootstrap.package import doubt
from outlive_agent.bootstrap.plan import Archive, Environment, Git, Plan, requirement
from outlive_agent.bootstrap.templates import fill
from outlive_agent.settings.document import parse

JOB = """\
run: gpt
store: {location: s3://runs/x}
training:
  directory: /srv/training
  command: [python, train.py]
"""
ODD = """\
run: gpt/x
stor: {location: s3://runs/x}
store: {location: /data}
save: {evry: 500 steps}
provider: digitalocaen
training:
  repository: {url: https://me:pw@github.com/me/training.git, brnch: main}
  archive: ./x.tar.gz
  command: python train.py
  user: root
  venv: /opt/env
  requirements: ../outside.txt
  writable: /big
  environment: {A: [8], HF_TOKEN: hf_abcdefghijklmnop, URL: "https://a:b@c", OUTLIVE_RUN: x}
agent: {package: "outlive; rm -rf /"}
"""


WHEEL = "outlive-0.1.0-py3-none-any.whl"


def job(text: str = JOB) -> Job:
    return read_job(text, name="job.yaml")


def test_all_problems_at_once() -> None:
    """One look tells everything that is wrong, with its line; unknown keys with the nearest known one."""
    with pytest.raises(ConfigError) as caught:
        job(ODD)
    lines = str(caught.value).splitlines()
    expected = [
        "line 1 +run: 'gpt/x' is not allowed",
        "line 2 +stor: unknown key; did you mean store?",
        "line 3 +store.location: a directory does not outlive its machine",
        "line 4 +save.evry: unknown key; did you mean every?",
        "line 5 +provider: 'digitalocaen' is not allowed; expected digitalocean or aws",
        "line 6 +training: needs exactly one of repository, archive, directory; got repository and archive",
        "line 7 +training.repository.url: .*not shown",
        "line 7 +training.repository.brnch: unknown key",
        "line 9 +training.command: .*there is no shell",
        "line 10 +training.user: .*another user than root",
        "line 12 +training.requirements: not together with venv",
        "line 12 +training.requirements: .*without \\.\\.",
        "line 13 +training.writable: .*a list of absolute paths",
        "line 14 +training.environment.A: a list is not allowed",
        "line 14 +training.environment.HF_TOKEN: .*from_env",
        "line 14 +training.environment.URL: .*from_env",
        "line 14 +training.environment.OUTLIVE_RUN: ",
        "line 15 +agent.package: ",
    ]
    missing = [wanted for wanted in expected if not any(re.search(wanted, line) for line in lines)]
    assert [] == missing
    assert 1 + len(expected) == len(lines)
    assert "hf_abc" not in str(caught.value)
    assert "pw@" not in str(caught.value)


def test_job_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing job file is named, with the way to get one."""
    with pytest.raises(ConfigError, match=r"no such file") as caught:
        load(tmp_path / "job.yaml")
    assert "--example" in caught.value.hint


def test_values_stay_as_written() -> None:
    """1e-3 reaches the command and the environment as 1e-3, a number as itself, tokenizers are no token."""
    text = JOB.replace("train.py]", "train.py, --lr, 1e-3]")
    text += "  environment: {LR: 1e-3, ON: true, TOKENIZERS_PARALLELISM: false, K: {from_env: HERE}}\n"
    training = job(text).training
    assert ("python", "train.py", "--lr", "1e-3") == training.command
    expected = {"LR": "1e-3", "ON": "true", "TOKENIZERS_PARALLELISM": "false", "K": FromEnv("HERE")}
    assert expected == training.variables


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("outlive==0.1.0", "outlive[train]==0.1.0"),
        ("outlive", "outlive[train]"),
        (f"https://x.org/{WHEEL}", f"outlive[train] @ https://x.org/{WHEEL}"),
        ("git+https://x.org/o.git@v1", "outlive[train] @ git+https://x.org/o.git@v1"),
        ("outlive @ git+https://x.org/o.git@v1", "outlive[train] @ git+https://x.org/o.git@v1"),
        (f"/w/{WHEEL}", f"outlive[train] @ file:///w/{WHEEL}"),
    ],
)
def test_training_gets_the_agents_version(package: str, expected: str) -> None:
    """Whatever pip installs as the agent, it installs for the training with torch; the job file takes it."""
    assert expected == requirement(package, "train")
    assert package == job(JOB + f"agent: {{package: '{package}'}}\n").package


def test_unit_says_what_the_job_says() -> None:
    """Another user, an own environment, the metadata server, more paths: each has lines in the drop-in."""
    more = ("user: ubuntu", "venv: /home/u/env", "metadata: true", "writable: [/big]", "stop_grace: 2 min")
    lines = render.unit(job(JOB + "".join(f"  {line}\n" for line in more))).splitlines()
    for line in (
        "WorkingDirectory=/srv/training",
        "ExecStart=/usr/bin/env python train.py",
        "User=ubuntu",
        "ReadWritePaths=/big",
        "TimeoutStopSec=120",
        "IPAddressDeny=",
        "ProtectHome=no",
        "Environment=OUTLIVE_RUN=gpt",
    ):
        assert line in lines
    assert any(line.startswith("Environment=VIRTUAL_ENV=/home/u/env PATH=/home/u/env/bin:") for line in lines)
    assert "ExecStartPre=" == [line for line in lines if line.startswith("ExecStartPre")][-1]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_no_argument_becomes_another(words: list[str]) -> None:
    """Quoted for a unit file and read as systemd reads it, every argument is itself again."""
    line = unit_text.command(words)
    assert "\n" not in line
    assert [] == re.findall(r"(?<!%)(?:%%)*%(?!%)", line)
    assert [] == re.findall(r"(?<!\$)(?:\$\$)*\$(?!\$)", line)
    assert words == [re.sub(r"\\(x..|U.{8}|.)", _unescape, part) for part in _split(line)]


def _split(line: str) -> list[str]:
    """The quoted or plain words of a line, still escaped."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    return [(quoted or plain).replace("%%", "%").replace("$$", "$") for quoted, plain in parts]


def _unescape(match: "re.Match[str]") -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return code


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,9}", fullmatch=True),
        st.text(st.characters(exclude_categories=("C", "Zl", "Zp", "Zs"), include_characters=" ")),
    )
)
def test_environment_file_holds_every_value(variables: dict[str, str]) -> None:
    """One line a variable, quoted as shells and systemd read it."""
    lines = unit_text.environment_file(variables).splitlines()
    assert len(variables) == len(lines)
    read = dict("".join(shlex.split(line)).split("=", 1) for line in lines)
    assert variables == read


@example({"no": None})
@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"]))
        | st.integers(-(10**17), 10**17)
        | st.booleans()
        | st.none(),
        lambda inner: st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), inner, min_size=1),
        max_leaves=5,
    )
)
def test_configuration_survives_two_readers(content: object) -> None:
    """What is written as YAML reads back the same, by the agent's reader and by any other."""
    text = "\n".join(render.yaml_lines({"store": content}))
    assert {"store": content} == parse(text, name="x").content
    assert {"store": content} == yaml.safe_load(text)


@given(
    st.builds(
        Plan,
        package=st.text(),
        source=st.none()
        | st.builds(Git, url=st.text(), ref=st.text(), token=st.none() | st.text(min_size=1))
        | st.builds(Archive, url=st.text(min_size=1), key=st.none())
        | st.builds(Archive, url=st.none(), key=st.text()),
        subdirectory=st.text(),
        environment=st.builds(Environment, venv=st.text(min_size=1))
        | st.builds(
            Environment,
            venv=st.none(),
            python=st.text(),
            system_packages=st.booleans(),
            requirements=st.none() | st.text() | st.lists(st.text()).map(tuple),
        ),
        user=st.text(),
        metadata=st.booleans(),
    )
)
def test_plan_travels_unchanged(plan: Plan) -> None:
    """The machine reads the plan that was written, in ASCII."""
    text = plan.encode()
    assert text.isascii()
    assert plan == Plan.decode(text)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "outlive/job", "version": 2}', "null", '{"format": 1}']
)
def test_other_plans_are_refused(text: str) -> None:
    """A plan of another version, or none at all, is one clear error."""
    with pytest.raises(ConfigError, match="the job is not of a form"):
        Plan.decode(text)


def test_template_values_are_not_templates() -> None:
    """A value that looks like a placeholder stays what it is; a block keeps the indentation of its place."""
    assert "a: {{b}}\n  x\n  {{a}}\n" == fill("a: {{a}}\n  {{b}}\n", {"a": "{{b}}", "b": "x\n{{a}}\n"})


def test_default_configuration_reads(tmp_path: Path) -> None:
    """The smallest job makes a configuration that the agent takes."""
    file = tmp_path / "outlive.yaml"
    file.write_text(render.config_text(job()))
    assert "train" == getattr(config.load(file).training, "user", None)


@pytest.mark.parametrize(
    ("origin", "package", "doubted"),
    [
        ("{}", "outlive==", False),
        ('{"url": "file:///home/ann/outlive", "dir_info": {"editable": true}}', "outlive==", True),
        (
            '{"url": "https://git.example/outlive.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}',
            "git+https://git.example/outlive.git@abc123",
            False,
        ),
        (
            '{"url": "https://x.example/o.whl", "archive_info": {}}',
            "https://x.example/o.whl",
            False,
        ),
        ("rubbish", "outlive==", False),
    ],
)
def test_machines_install_what_is_here(
    monkeypatch: pytest.MonkeyPatch, origin: str, package: str, doubted: bool
) -> None:
    """Machines get the outlive that renders, from its address; where they can't reach that, it is said."""

    class Installed:
        def read_text(self, name: str) -> str:
            return origin

    monkeypatch.setattr("outlive_agent.bootstrap.package.distribution", lambda name: Installed())
    made = job(JOB).package
    assert made.startswith(package)
    assert bool(doubt(made)) is doubted


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is a directory"),
        (b"#" * (1 << 20) + b"\n", "no job file"),
        (b"\n\xff", "line 2: not UTF-8"),
    ],
)
def test_what_can_not_be_a_job_file_is_refused_at_once(
    tmp_path: Path, content: "bytes | None", says: str
) -> None:
    """The wrong file, such as an archive of gigabytes, is not read to its end to find that out."""
    path = tmp_path / "job.yaml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        load(path)
    assert caught.value.hint
