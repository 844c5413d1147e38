"""Where a setting comes from (argument over environment over file over default), and the store's keys."""

from argparse import Namespace
from pathlib import Path

import pytest

from outlive.errors import ConfigError, NoBucket
from outlive.objects.credentials import Credentials
from outlive_agent import config
from outlive_agent.settings import credentials
from outlive_agent.settings.credentials import credentials_for
from outlive_agent.settings.naming import run_name_for
from outlive_agent.settings.readers import run_name
from outlive_agent.settings.values import CredentialsFrom, Every, StoreSettings

FILE = """\
run: filed
store: {location: s3://filed/prefix, region: eu-1, credentials: {file: /etc/outlive/credentials}}
save: {every: 30s, keep: {last: 7}}
training: {command: [filed], restarts: 9}
"""
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - an example


@pytest.fixture
def filed(tmp_path: Path) -> str:
    path = tmp_path / "outlive.yaml"
    path.write_text(FILE)
    return str(path)


def test_exec_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command alone is enough: a directory of this user as the store, directory and script as the run."""
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path / "mnist")
    made = config.for_exec(Namespace(command=["python", "train.py"]), {"HOME": "/home/me"})
    assert (made.run, made.store.location) == ("mnist-train", "/home/me/.local/share/outlive")
    assert made.save.every.auto
    assert made.training is not None
    assert made.training.command == ("python", "train.py")


def test_a_new_account_has_a_place_for_its_store(tmp_path: Path) -> None:
    """The default store works on an account that has no ~/.local yet; one that was named is not made."""
    environ = {"HOME": str(tmp_path / "me")}
    made = config.for_exec(Namespace(command=["a"]), environ)
    config.open_configured_store(made, environ).put("a", b"b")
    assert (tmp_path / "me" / ".local" / "share" / "outlive" / "a").read_bytes() == b"b"
    named = config.for_exec(Namespace(command=["a"], store=str(tmp_path / "no" / "such")), environ)
    with pytest.raises(NoBucket):
        config.open_configured_store(named, environ).put("a", b"b")
    (tmp_path / "you").write_text("")
    blocked = config.for_exec(Namespace(command=["a"]), {"HOME": str(tmp_path / "you")})
    with pytest.raises(ConfigError, match="not a directory"):
        config.open_configured_store(blocked, environ)


def test_an_argument_wins_over_environment_over_file(filed: str) -> None:
    """Each setting comes from the strongest place that names it, the others from below."""
    environ = {"OUTLIVE_RUN": "environment", "OUTLIVE_EVERY": "5 steps", "OUTLIVE_S3_REGION": "us-2"}
    args = Namespace(command=["argument"], config=filed, run="argument", keep=2)
    made = config.for_exec(args, environ)
    assert made.run == "argument"
    assert made.save.every == Every(steps=5)
    assert made.save.keep.last == 2
    assert (made.store.location, made.store.region) == ("s3://filed/prefix", "us-2")
    assert made.training is not None
    assert (made.training.command, made.training.restarts) == (("argument",), 9)
    assert config.for_exec(Namespace(command=[]), {"OUTLIVE_CONFIG": filed}).run == "filed"


def test_another_store_gets_nothing_of_the_filed_one(filed: str) -> None:
    """Keys and endpoint that belong to one store are never sent to another."""
    made = config.for_exec(Namespace(command=["a"], config=filed, store="s3://other"), {})
    assert made.store.credentials is None
    assert made.store.region is None
    same = config.for_exec(Namespace(command=["a"], config=filed, store="s3://filed/prefix"), {})
    assert same.store.credentials is not None


def test_a_wrong_flag_is_named(tmp_path: Path) -> None:
    """A mistake in a flag or a variable is told with its name, all of them at once."""
    args = Namespace(command=["a"], every="often", stop_grace="0s")
    with pytest.raises(ConfigError) as caught:
        config.for_exec(args, {"OUTLIVE_RUN": "a/b", "HOME": str(tmp_path)})
    assert "--every" in str(caught.value)
    assert "--stop-grace" in str(caught.value)
    assert "$OUTLIVE_RUN" in str(caught.value)


def test_a_relative_store_is_where_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative directory is meant from here, also for a child that runs elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert config.for_exec(Namespace(command=["a"], store="here"), {}).store.location == str(
        tmp_path / "here"
    )
    assert config.for_reading("./here", None, {}).location == str(tmp_path / "here")


def test_where_the_reading_verbs_look(filed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument, else the environment, else the file, else the local default; it says which."""
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.yaml")
    environ = {"OUTLIVE_STORE": "/environment", "XDG_DATA_HOME": "/data"}
    assert config.for_reading("/argument", None, environ).location == "/argument"
    assert config.for_reading(None, None, environ).location == "/environment"
    assert config.for_reading(None, filed, {}).location == "s3://filed/prefix"
    found = config.for_reading(None, None, {"XDG_DATA_HOME": "/data"})
    assert (found.location, found.origin) == ("/data/outlive", "the default")
    monkeypatch.setattr(config, "DEFAULT_PATH", Path(filed))
    assert config.for_reading(None, None, {}).location == "s3://filed/prefix"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store: {locaton: /x}", "store.locaton: unknown key; did you mean location?"),
        ("store: {locaton: /x}", "line 1  store.location: missing"),
        ("store: [1]", "store: a list is not allowed"),
        ("store: 3", "store: 3 is not allowed"),
        ("store:", "line 1  store.location: missing"),
        ("store: {region: eu-1}", "store.location: missing"),
        ("stor: {location: /x}", "stor: unknown key; did you mean store?"),
    ],
)
def test_a_store_that_is_meant_is_never_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """Whoever speaks of a store but names none is refused by every verb; nothing goes to the default."""
    path = tmp_path / "outlive.yaml"
    path.write_text(f"{text}\n")
    monkeypatch.setattr(config, "DEFAULT_PATH", path)
    environ = {"HOME": str(tmp_path)}
    named = Namespace(command=["a"], config=str(path))
    for read in (
        lambda: config.for_exec(named, environ),
        lambda: config.for_exec(named, {**environ, "OUTLIVE_S3_REGION": "eu-1"}),
        lambda: config.for_doctor(Namespace(config=None), environ),
        lambda: config.for_reading(None, str(path), environ),
        lambda: config.for_reading(None, None, environ),
    ):
        with pytest.raises(ConfigError) as refused:
            read()
        if "missing" not in said:
            assert said in str(refused.value)
    assert said in str(refused.value)
    assert config.for_reading("/named", None, environ).location == "/named"


def test_an_endpoint_alone_is_no_store(tmp_path: Path) -> None:
    """Who sets an endpoint means a bucket: without its name nothing is saved on this disk instead."""
    environ = {"HOME": str(tmp_path), "OUTLIVE_S3_ENDPOINT": "https://nyc3.digitaloceanspaces.com"}
    with pytest.raises(ConfigError, match=r"\$OUTLIVE_S3_ENDPOINT  store.location: missing"):
        config.for_exec(Namespace(command=["a"]), environ)


def test_reading_needs_no_more_than_the_store(tmp_path: Path) -> None:
    """A wrong hook keeps nobody from what is saved; where a file names no store, all of it must be right."""
    path = tmp_path / "outlive.yaml"
    path.write_text("store: {location: /x}\nsave: {keep: {last: -1}}\n")
    assert config.for_reading(None, str(path), {}).location == "/x"
    path.write_text("save: {keep: {last: -1}}\n")
    with pytest.raises(ConfigError, match=r"line 1  save.keep.last: -1 is not allowed"):
        config.for_reading(None, str(path), {"HOME": "/home/me"})
    path.write_text("save: {every: 30s}\n")
    found = config.for_reading(None, str(path), {"HOME": "/home/me"})
    assert found.location == "/home/me/.local/share/outlive"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py"], "mnist-train"),
        (["torchrun", "--nproc-per-node", "2", "src/fit.py", "--lr", "1"], "mnist-fit"),
        (["python3", "-u", "-m", "package.train", "--x"], "mnist-train"),
        (["./run.sh", "all"], "mnist-run"),
        (["/opt/my tool/träin.py"], "mnist-tr-in"),
        (["..."], "mnist"),
        (["x" * 100], "mnist-" + "x" * 58),
    ],
)
def test_a_run_gets_a_name_from_its_command(command: list[str], name: str) -> None:
    """Directory and script name a run that has no name, and the name is always allowed."""
    assert run_name_for(command, Path("/home/me/mnist")) == name
    assert run_name(run_name_for(command, Path("/"))) == run_name_for(command, Path("/"))


def write_keys(path: Path, text: str, mode: int = 0o600) -> StoreSettings:
    path.write_text(text)
    path.chmod(mode)
    return StoreSettings(location="s3://b", credentials=CredentialsFrom(file=path))


def test_keys_from_each_place(tmp_path: Path) -> None:
    """The same two lines give the same keys from a file and from systemd; variables may have any name."""
    lines = f"# the store\n\nexport OUTLIVE_S3_ACCESS_KEY_ID='KEY'\nOUTLIVE_S3_SECRET_ACCESS_KEY={SECRET}\n"
    expected = Credentials(access_key="KEY", secret_key=SECRET)
    assert credentials_for(write_keys(tmp_path / "keys", lines), {}) == expected
    systemd = StoreSettings(location="s3://b", credentials=CredentialsFrom(systemd="keys"))
    assert credentials_for(systemd, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == expected
    named = StoreSettings(location="s3://b", credentials=CredentialsFrom(env=("A", "B", "C")))
    found = credentials_for(named, {"A": "KEY", "B": SECRET, "C": "session"})
    assert found == Credentials(access_key="KEY", secret_key=SECRET, session_token="session")  # noqa: S106
    assert credentials_for(StoreSettings(location="s3://b"), {"A": "KEY"}) is None


def test_root_reads_at_a_shell_what_systemd_gives_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where systemd hands over nothing, the file behind the credential is read, if it is private."""
    lines = f"OUTLIVE_S3_ACCESS_KEY_ID=KEY\nOUTLIVE_S3_SECRET_ACCESS_KEY={SECRET}\n"
    write_keys(tmp_path / "keys", lines)
    monkeypatch.setattr(credentials, "LOADED_FROM", tmp_path)
    store = StoreSettings(location="s3://b", credentials=CredentialsFrom(systemd="keys"))
    assert Credentials(access_key="KEY", secret_key=SECRET) == credentials_for(store, {})
    (tmp_path / "keys").chmod(0o644)
    with pytest.raises(ConfigError, match="every user of this machine"):
        credentials_for(store, {})


def test_a_file_of_keys_that_all_can_read_is_refused(tmp_path: Path) -> None:
    """Keys that every user of the machine can read are not used, and the way out is said."""
    store = write_keys(
        tmp_path / "keys", "OUTLIVE_S3_ACCESS_KEY_ID=a\nOUTLIVE_S3_SECRET_ACCESS_KEY=b\n", 0o644
    )
    with pytest.raises(ConfigError, match="every user of this machine") as caught:
        credentials_for(store, {})
    assert caught.value.hint == f"chmod 600 {tmp_path / 'keys'}"
    (tmp_path / "keys").chmod(0o640)
    assert credentials_for(store, {}) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SECRET}\n", "keys, line 1: not NAME=VALUE"),
        ("", "keys: no keys in it"),
        (f"OUTLIVE_S3_SECRET_ACCESS_KEY={SECRET}\n", "OUTLIVE_S3_ACCESS_KEY_ID is not"),
        ("#" * 70000, "too large"),
    ],
)
def test_a_bad_file_of_keys(tmp_path: Path, text: str, said: str) -> None:
    """A file that holds no keys is told by its name and line, never by its content."""
    with pytest.raises(ConfigError, match=said) as caught:
        credentials_for(write_keys(tmp_path / "keys", text), {})
    assert SECRET[:10] not in f"{caught.value}{caught.value.hint}"
    assert "OUTLIVE_S3_SECRET_ACCESS_KEY=..." in caught.value.hint


def test_keys_that_are_not_there(tmp_path: Path) -> None:
    """A place that doesn't exist is named: the file, the variables, or systemd's directory."""
    for source, said in (
        (CredentialsFrom(file=tmp_path / "none"), "no such file"),
        (CredentialsFrom(env=("A", "B")), "A and B are not set"),
        (CredentialsFrom(systemd="outlive-store"), "systemd started no unit here"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            credentials_for(StoreSettings(location="s3://b", credentials=source), {})
        assert caught.value.hint
