"""The configuration file: strict, everything wrong at once, and no secret in or out."""

import copy
import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.errors import ConfigError
from outlive_agent.config import Config, Every, load

FULL = """\
run: gpt
store:
  location: s3://bucket/prefix
  endpoint: https://nyc3.digitaloceanspaces.com
  region: us-east-1
  ca_bundle: /etc/ssl/private-ca.pem
  credentials: {file: /etc/outlive/credentials}
save:
  every: 200 steps
  keep: {last: 5, every: 1000 steps, best: loss}
training:
  command: [python, train.py, --epochs, 10, --lr, 1e-3, --fast, yes]
  user: train
  restarts: 0
  stop_grace: 1 min 30 s
  directory: /srv/train
reclaim: {provider: none, flag_file: null, inbox: false}
"""
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - an example


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "outlive.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def complaint(tmp_path: Path, text: str) -> str:
    """Everything that is said about a bad file, without the file's own path."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return f"{caught.value}\n{caught.value.hint}".replace(str(tmp_path / "outlive.yaml"), "FILE")


def test_a_full_file(tmp_path: Path) -> None:
    """Every setting arrives as it was written, arguments of the command to the letter."""
    config = read(tmp_path, FULL)
    assert config.run == "gpt"
    assert (config.store.location, config.store.region) == ("s3://bucket/prefix", "us-east-1")
    assert config.store.credentials is not None
    assert config.store.credentials.file == Path("/etc/outlive/credentials")
    assert config.store.ca_bundle == Path("/etc/ssl/private-ca.pem")
    assert config.save.every == Every(steps=200)
    assert (config.save.keep.last, config.save.keep.every_steps, config.save.keep.best) == (5, 1000, "loss")
    assert config.training is not None
    assert config.training.command == (
        "python",
        "train.py",
        "--epochs",
        "10",
        "--lr",
        "1e-3",
        "--fast",
        "yes",
    )
    assert config.training.stop_grace == timedelta(seconds=90)
    assert (config.training.restarts, config.training.directory) == (0, Path("/srv/train"))
    assert (config.reclaim.provider, config.reclaim.flag_file, config.reclaim.inbox) == ("none", None, False)


def test_a_short_file_gets_the_defaults(tmp_path: Path) -> None:
    """A run and a place are enough; an empty section is as good as none."""
    config = read(tmp_path, "run: gpt\nstore: {location: /srv/outlive}\nsave:\ntraining:\n")
    assert config.save.every.auto
    assert config.save.keep.last == 3
    assert config.training is None
    assert config.reclaim.flag_file == Path("/run/outlive/checkpoint-now")


@pytest.mark.parametrize(
    ("text", "every"),
    [("auto", Every()), ("30s", Every(duration=timedelta(seconds=30))), ("1 step", Every(steps=1))],
)
def test_intervals(tmp_path: Path, text: str, every: Every) -> None:
    """An interval is auto, time or steps, and prints as it was meant."""
    config = read(tmp_path, f"run: a\nstore: {{location: /s}}\nsave: {{every: {text}}}\n")
    assert config.save.every == every
    assert str(every) == {"30s": "30 s"}.get(text, text)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    """One reading tells every problem, with its line, its path, its value and what is allowed."""
    text = """\
run: -gpt
store:
  location: bucket/prefix
  endpont: https://nyc3.digitaloceanspaces.com
save: {every: 30, keep: {last: 0}}
training: {command: python train.py}
run: gpt2
reclaim: {inbox: yes}
colour: red
"""
    lines = complaint(tmp_path, text).splitlines()
    assert lines[0] == "FILE: 8 settings are wrong"
    found = "\n".join(re.sub(r" +", " ", line.strip()) for line in lines[1:])
    assert (
        found.splitlines()
        == [
            "line 3 store.location: 'bucket/prefix' is not allowed; expected s3://bucket/prefix, "
            "https://endpoint/bucket/prefix, or an absolute path",
            "line 4 store.endpont: unknown key; did you mean endpoint?",
            "line 5 save.every: 30 is not allowed; expected auto, a duration with its unit such as 30s, "
            "or a number of steps such as 200 steps",
            "line 5 save.keep.last: 0 is not allowed; expected a whole number from 1 to 1000000",
            "line 6 training.command: 'python train.py' is not allowed; expected a list, such as "
            "[python, train.py, --epochs, 10]; there is no shell",
            "line 7 run: given twice",
            "line 8 reclaim.inbox: 'yes' is not allowed; expected true or false",
            "line 9 colour: unknown key; known here: run, store, save, training, reclaim",
        ]
        or "run: given twice" in found
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: gpt\n\tstore: x\n", "FILE, line 2, column 1: there is a tab here; YAML wants spaces"),
        ("run: a: b\n", "FILE, line 1, column 7: a colon where none can be"),
        ("run: [a\n", "a bracket that isn't closed"),
        ("run: 'a\n", "a quote that isn't closed"),
        ("run: *a\n", "aliases (*name) can't be used"),
        ("run: !!python/object:os.system x\n", "tags (!name) can't be used"),
        ("run: @a\n", "needs quotes"),
        ("run: a\n---\nrun: b\n", "a second document begins"),
        ("run: \x07\n", "FILE, line 1: a character that YAML doesn't allow"),
        ("run: " + "[" * 1000 + "]" * 1000, "too deep"),
        ("- run\n", "FILE: no settings in it"),
        ("", "FILE: no settings in it"),
        ("run: 7\nstore: {location: /s}\n", "put it into quotes"),
        ("store: /data\nrun: a\n", "store: '/data' is not allowed; expected 'key: value' lines below store"),
        ("store: {location: /s}\n", "run: missing"),
        ("run: a\nstore: {location: /s, credentials: {}}\n", "exactly one of env, file, systemd; got none"),
        ("run: a\nstore: {location: /s, credentials: {file: /a, systemd: b}}\n", "got file and systemd"),
    ],
)
def test_what_is_said_about_a_bad_file(tmp_path: Path, text: str, said: str) -> None:
    """A file that can't be used is answered with a line that helps, never with a library's words."""
    assert said in complaint(tmp_path, text)


@pytest.mark.parametrize("address", ["https://host:99999", "https://[bad", "host:80"])
def test_an_address_that_can_not_be_one(tmp_path: Path, address: str) -> None:
    """A port out of range is told with everything else, and not by the first request."""
    path = tmp_path / "outlive.yaml"
    path.write_text(f"run: gpt\nstore: {{location: s3://b/x, endpoint: '{address}'}}\n")
    with pytest.raises(ConfigError, match=r"store.endpoint: '.*' is not allowed"):
        load(path)


def test_words_of_old_yaml_stay_words(tmp_path: Path) -> None:
    """A run may be called ``no`` or like a date: the rules are those that editors know."""
    assert read(tmp_path, "run: no\nstore: {location: /s}\n").run == "no"
    assert read(tmp_path, "run: 2026-11-30\nstore: {location: /s}\n").run == "2026-11-30"


@pytest.mark.parametrize(
    "settings",
    [
        f"credentials: {{env: [AKIAIOSFODNN7EXAMPLE, '{SECRET}']}}",
        f"credentials: {{env: [OUTLIVE_S3_ACCESS_KEY_ID, '{SECRET}']}}",
        f"credentials: {{secret_key: '{SECRET}'}}",
        f"credentials: '{SECRET}'",
        f"secret_access_key: '{SECRET}'",
        f"credentials: {{file: '{SECRET}'}}",
        f"token: '{SECRET}'",
        f"endpoint: 'https://key:{SECRET}@host'",
        f"region: '{SECRET}'",
        f"credentials: {{file: '{SECRET}",
        f"credentials: *{SECRET}",
        f"credentials: !{SECRET} x",
        f"credentials: {SECRET}: x",
        f"credentials: [{SECRET}, {{",
    ],
)
def test_a_secret_is_refused_and_not_repeated(tmp_path: Path, settings: str) -> None:
    """A secret in the file is an error, and wherever it stands no message shows it."""
    said = complaint(tmp_path, f"run: a\nstore:\n  location: s3://bucket\n  {settings}\n")
    assert SECRET[:12] not in said
    assert "AKIA" not in said


def test_a_secret_is_answered_with_how_to_refer_to_it(tmp_path: Path) -> None:
    """Who writes a key into the file learns where to put it instead."""
    for line in (
        f"secret_key: {SECRET}",
        f"credentials: {{env: [A, '{SECRET}']}}",
        f"password: {SECRET}",
    ):
        said = complaint(tmp_path, f"run: a\nstore:\n  location: s3://bucket\n  {line}\n")
        assert "credentials: {file: /etc/outlive/credentials}" in said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """No file, a directory, another encoding, or gigabytes: each is one line with a hint."""
    for path, said in ((tmp_path / "none.yaml", "there is no such file"), (tmp_path, "is a directory")):
        with pytest.raises(ConfigError, match=said) as caught:
            load(path)
        assert caught.value.hint
    (tmp_path / "latin").write_bytes(b"run: gpt\nuser: \xe4\n")
    with pytest.raises(ConfigError, match=r"latin, line 2: not UTF-8"):
        load(tmp_path / "latin")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(tmp_path / "large")


def test_a_configuration_can_not_be_changed(tmp_path: Path) -> None:
    """What was checked stays what it was: it can only be copied."""
    config = read(tmp_path, FULL)
    with pytest.raises(AttributeError):
        config.run = "other"  # type: ignore[misc]
    assert copy.deepcopy(config) == config


@settings(deadline=None)
@given(text=st.text(st.sampled_from("run:store{}[]location/s3 \n\t\"'!&*?|>-#%@`,abc0é\\x"), max_size=80))
def test_any_text_is_answered_in_our_own_words(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever a file holds, reading it ends with a configuration or a ``ConfigError``."""
    path = tmp_path_factory.mktemp("config", numbered=True) / "outlive.yaml"
    path.write_text(text, encoding="utf-8")
    said = str(path)
    try:
        load(path)
    except ConfigError as error:
        said = str(error)
    assert said.startswith(str(path))
